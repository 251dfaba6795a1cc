/**
 * Fleet: many batchers behind one queue, in simulated time. Routing is the product's: jobs wait in one line, and a batcher takes the foremost when it
 * has room for another (late binding); of several that have room, the one that has waited longest gets it. What would wait too long is refused at once.
 * Guarantee: every request has exactly one outcome, and the same requests give the same times.
 *
 * Not simulated: the queue of one's own that a batcher has for prompts whose beginning it holds, other tenants.
 */
import { Heap } from '../batcher/scheduler/heap.ts';
import { RequestRefused } from '../batcher/scheduler/sequence-request.ts';
import type { AdmissionSettings } from '../shared/admission.ts';
import type { ServedRequest } from './goodput.ts';
import type { LatencyHistogram } from './latency-histogram.ts';
import type { ServiceCurves } from './service-curves.ts';
import { SimulatedAdmission } from './simulated-admission.ts';
import { type BatcherUse, noUse, SimulatedBatcher, type SimulatedRequest, type SimulatedSettings } from './simulated-batcher.ts';
import { SimulatedBoard } from './simulated-cards.ts';
import { SimulatedEngine } from './simulated-engine.ts';

export interface FleetPlan {
  curves: ServiceCurves;
  settings: SimulatedSettings;
  /** Of the gateway. */
  admission: AdmissionSettings;
  batcherCount: number;
  /** In order of arrival; asked for one by one, so that a million need not be in memory. */
  requests: Iterable<SimulatedRequest>;
  /** How long requests come. */
  windowMs: number;
  /** What is open so long after the window counts as unfinished; absent waits for all. */
  drainMs?: number;
  /** Times between two tokens of one stream go here. */
  gaps: LatencyHistogram;
  onServed(served: ServedRequest): void;
}

export interface FleetRecord {
  /** Of all batchers together. */
  use: BatcherUse;
  /** When the last thing happened. */
  endedAt: number;
}

/** Something that will happen to a job or to a batcher that takes one. */
type Happening = { at: number; place: number | undefined } & (
  | { kind: 'queued'; request: SimulatedRequest }
  | { kind: 'taken'; request: SimulatedRequest; batcher: Member }
);

interface Member {
  batcher: SimulatedBatcher;
  /** Of its card. */
  cardPlace: number;
  /** In the line of those who wait for a job, or on the way to one. */
  isTaking: boolean;
}

export function simulateFleet(plan: FleetPlan): FleetRecord {
  return new Fleet(plan).run();
}

class Fleet {
  readonly #plan: FleetPlan;
  readonly #open = new Map<string, SimulatedRequest>();
  readonly #members: Member[];
  readonly #byBatcher = new Map<SimulatedBatcher, Member>();
  /** Batchers by when they next do something. */
  readonly #clocks = new Heap<SimulatedBatcher>({
    before: (a, b) => a.nextAt < b.nextAt,
    place: batcher => batcher.place,
    setPlace: (batcher, place) => {
      batcher.place = place;
    },
  });
  readonly #happenings = new Heap<Happening>({
    before: (a, b) => a.at < b.at,
    place: one => one.place,
    setPlace: (one, place) => {
      one.place = place;
    },
  });
  readonly #queue = new Line<SimulatedRequest>();
  readonly #takers = new Line<Member>();
  readonly #board: SimulatedBoard;
  readonly #admission: SimulatedAdmission;
  #now = 0;

  constructor(plan: FleetPlan) {
    this.#plan = plan;
    const engine = new SimulatedEngine(plan.curves, Math.max(2, plan.settings.maxRunning));
    this.#members = Array.from({ length: plan.batcherCount }, (_, cardPlace) => ({
      batcher: new SimulatedBatcher({
        engine,
        settings: plan.settings,
        deliveryMs: plan.curves.path.deliveryMs,
        gaps: plan.gaps,
        onEnded: (served, request) => this.#ended(served, request),
      }),
      cardPlace,
      isTaking: true,
    }));
    this.#board = new SimulatedBoard(this.#members.map(member => member.batcher));
    this.#admission = new SimulatedAdmission(plan.admission, this.#board);
    for (const member of this.#members) {
      this.#byBatcher.set(member.batcher, member);
      this.#takers.push(member);
    }
  }

  run(): FleetRecord {
    const { windowMs, drainMs = Number.POSITIVE_INFINITY } = this.#plan;
    const arrivals = this.#plan.requests[Symbol.iterator]();
    let next = arrivals.next();
    for (;;) {
      const arrivesAt = next.done === true ? Number.POSITIVE_INFINITY : next.value.arrivedAt;
      const happensAt = this.#happenings.top?.at ?? Number.POSITIVE_INFINITY;
      const stepsAt = this.#clocks.top?.nextAt ?? Number.POSITIVE_INFINITY;
      const at = Math.min(arrivesAt, happensAt, stepsAt);
      if (at === Number.POSITIVE_INFINITY || at > windowMs + drainMs) break;
      this.#now = at;
      if (at === stepsAt) this.#advance(this.#clocks.top!);
      else if (at === happensAt) this.#happen(this.#happenings.pop()!);
      else if (next.done !== true) {
        this.#arrive(next.value);
        next = arrivals.next();
      }
    }
    for (const request of this.#open.values()) this.#plan.onServed(neverServed(request, 'unfinished'));
    return { use: this.#use(), endedAt: this.#now };
  }

  #arrive(request: SimulatedRequest): void {
    this.#open.set(request.id, request);
    this.#happenings.push({ kind: 'queued', at: this.#now + this.#plan.curves.path.arrivalMs, request, place: undefined });
  }

  #happen(happening: Happening): void {
    if (happening.kind === 'queued') {
      this.#enter(happening.request);
      return;
    }
    const { batcher: member, request } = happening;
    member.isTaking = false;
    this.#board.changing(member.cardPlace, this.#now);
    try {
      member.batcher.submit(request, this.#now);
      this.#admission.accepted(request);
    } catch (error) {
      if (!(error instanceof RequestRefused)) throw error;
      this.#admission.failed(request);
      this.#refuse(request);
    }
    this.#keepTime(member.batcher);
    this.#offer(member);
    this.#serve();
  }

  /** It comes to the queue, if the gateway lets it. */
  #enter(request: SimulatedRequest): void {
    if (!this.#admission.letIn(request, this.#queue.length, this.#now)) {
      this.#refuse(request);
      return;
    }
    this.#queue.push(request);
    this.#serve();
  }

  #refuse(request: SimulatedRequest): void {
    this.#open.delete(request.id);
    this.#plan.onServed(neverServed(request, 'refused'));
  }

  #advance(batcher: SimulatedBatcher): void {
    const member = this.#byBatcher.get(batcher)!;
    this.#board.changing(member.cardPlace, this.#now);
    batcher.advance();
    this.#keepTime(batcher);
    this.#offer(member);
    this.#serve();
  }

  /** A batcher that has room waits for a job, behind those who do so already. */
  #offer(member: Member): void {
    if (member.isTaking || member.batcher.waitingCount >= Math.max(1, this.#plan.settings.prefetch)) return;
    member.isTaking = true;
    this.#takers.push(member);
  }

  #serve(): void {
    while (this.#queue.length > 0 && this.#takers.length > 0) {
      const [batcher, request] = [this.#takers.shift()!, this.#queue.shift()!];
      this.#happenings.push({ kind: 'taken', at: this.#now + this.#plan.curves.path.fetchMs, request, batcher, place: undefined });
    }
  }

  #keepTime(batcher: SimulatedBatcher): void {
    if (batcher.nextAt === Number.POSITIVE_INFINITY) this.#clocks.remove(batcher);
    else if (this.#clocks.has(batcher)) this.#clocks.update(batcher);
    else this.#clocks.push(batcher);
  }

  #ended(served: ServedRequest, request: SimulatedRequest): void {
    this.#open.delete(request.id);
    this.#admission.ended(request);
    this.#plan.onServed(served);
  }

  #use(): BatcherUse {
    const total = noUse();
    for (const { batcher } of this.#members) {
      for (const [name, value] of Object.entries(batcher.use) as [keyof BatcherUse, number][]) {
        total[name] = name === 'peakKvUse' ? Math.max(total[name], value) : total[name] + value;
      }
    }
    return total;
  }
}

/** First in, first out, without moving what is behind. */
class Line<T> {
  #items: T[] = [];
  #head = 0;

  get length(): number {
    return this.#items.length - this.#head;
  }

  push(item: T): void {
    this.#items.push(item);
  }

  shift(): T | undefined {
    const item = this.#items[this.#head];
    if (item === undefined) return undefined;
    this.#head += 1;
    if (this.#head > 1_024 && this.#head * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
    return item;
  }
}

function neverServed({ arrivedAt, promptTokenIds }: SimulatedRequest, outcome: ServedRequest['outcome']): ServedRequest {
  return {
    ...{ arrivedAt, promptTokens: promptTokenIds.length, cachedTokens: 0, completionTokens: 0 },
    ...{ firstTokenAt: undefined, lastTokenAt: undefined, outcome },
  };
}
