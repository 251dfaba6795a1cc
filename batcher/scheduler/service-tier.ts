/**
 * ServiceTier: one class of service in the waiting queue: the lines of its tenants, in the orders that decide whose turn it is within the class, and
 * what each tenant has been served. A lane is one tenant in one class.
 * Guarantee: a lane is hungry when it has new requests in line, urgent or parked when one of them has a deadline that may be met, idle when it has
 * nothing at all; and nothing here walks a line.
 */
import { Heap } from './heap.ts';
import type { SchedulerSettings } from './scheduler-settings.ts';
import type { Sequence } from './sequence.ts';

export interface Entry {
  sequence: Sequence;
  lane: Lane;
  order: number;
  enqueuedAt: number;
  deadlineAt: number | undefined;
  deadlinePlace: number | undefined;
  resumedPlace: number | undefined;
  earlier: Entry | undefined;
  later: Entry | undefined;
}

interface Lane {
  tenant: string;
  weight: number;
  /** Tokens served divided by weight. */
  counter: number;
  /** New requests in line. */
  waitingCount: number;
  /** Preempted sequences that wait. */
  resumedCount: number;
  runningCount: number;
  first: Entry | undefined;
  last: Entry | undefined;
  deadlines: Heap<Entry>;
  counterPlace: number | undefined;
  urgentPlace: number | undefined;
  parkedPlace: number | undefined;
  idlePlace: number | undefined;
}

export interface ServiceTierParts {
  settings: Pick<SchedulerSettings, 'fairnessBoundTokens' | 'ageingMs'>;
  /** Whether the sequence's first token can still come before the deadline. */
  isFeasible(sequence: Sequence, deadlineAt: number, now: number): boolean;
}

export interface LaneService {
  tenant: string;
  weight: number;
  /** Tokens computed and generated per weight, above the start that a newcomer gets. */
  servedPerWeight: number;
  waitingCount: number;
  runningCount: number;
}

export class ServiceTier {
  readonly #settings: ServiceTierParts['settings'];
  readonly #isFeasible: ServiceTierParts['isFeasible'];
  readonly #lanes = new Map<string, Lane>();
  /** Lanes with waiting entries, least served first. */
  readonly #hungry = new Heap<Lane>({
    before: (a, b) => (a.counter !== b.counter ? a.counter < b.counter : (a.first?.order ?? 0) < (b.first?.order ?? 0)),
    place: lane => lane.counterPlace,
    setPlace: (lane, place) => {
      lane.counterPlace = place;
    },
  });
  /** Lanes with a deadline that may be met, earliest first, except those too far ahead. */
  readonly #urgent = new Heap<Lane>({
    before: (a, b) => isMoreUrgent(a.deadlines.top, b.deadlines.top),
    place: lane => lane.urgentPlace,
    setPlace: (lane, place) => {
      lane.urgentPlace = place;
    },
  });
  /** Lanes with a deadline that are too far ahead, least served first. */
  readonly #parked = new Heap<Lane>({
    before: (a, b) => a.counter < b.counter,
    place: lane => lane.parkedPlace,
    setPlace: (lane, place) => {
      lane.parkedPlace = place;
    },
  });
  /** Lanes with nothing waiting or running, least served first: forgotten when the floor passes them. */
  readonly #idle = new Heap<Lane>({
    before: (a, b) => a.counter < b.counter,
    place: lane => lane.idlePlace,
    setPlace: (lane, place) => {
      lane.idlePlace = place;
    },
  });
  readonly #resumed = new Heap<Entry>({
    before: (a, b) => a.sequence.admissionOrder! < b.sequence.admissionOrder!,
    place: entry => entry.resumedPlace,
    setPlace: (entry, place) => {
      entry.resumedPlace = place;
    },
  });
  /** What a tenant that comes back starts with at least; never falls. */
  #floor = 0;
  /** The last lane whose line became empty. */
  #lastLeft: Lane | undefined;
  #waitingCount = 0;

  constructor({ settings, isFeasible }: ServiceTierParts) {
    this.#settings = settings;
    this.#isFeasible = isFeasible;
  }

  /** Entries of all lanes. */
  get waitingCount(): number {
    return this.#waitingCount;
  }

  /** A new request, at the end of its tenant's line. */
  push(sequence: Sequence, order: number, now: number): Entry {
    const lane = this.#laneOf(sequence);
    lane.weight = sequence.request.weight ?? 1;
    const entry = this.#enter(sequence, lane, { order, enqueuedAt: Math.min(now, sequence.request.arrivedAt) });
    entry.earlier = lane.last;
    if (lane.last === undefined) lane.first = entry;
    else lane.last.later = entry;
    lane.last = entry;
    const deadlineAt = sequence.request.ttftDeadlineAt;
    if (deadlineAt !== undefined && this.#isFeasible(sequence, deadlineAt, now)) {
      entry.deadlineAt = deadlineAt;
      lane.deadlines.push(entry);
    }
    if (lane.waitingCount === 0) {
      // With nobody waiting nobody is behind: the newcomer starts where the last one left.
      if (this.#hungry.size === 0 && this.#lastLeft !== undefined) this.#floor = Math.max(this.#floor, this.#lastLeft.counter);
      lane.counter = Math.max(lane.counter, this.#floor);
      this.#idle.remove(lane);
      lane.waitingCount = 1;
      this.#hungry.push(lane);
      this.#forgetIdle();
    } else {
      lane.waitingCount += 1;
    }
    this.#placeUrgent(lane);
    return entry;
  }

  /** A sequence that lost its row. It was running, and waits before all new ones. */
  pushPreempted(sequence: Sequence, order: number, now: number): Entry {
    const lane = this.#laneOf(sequence);
    const entry = this.#enter(sequence, lane, { order, enqueuedAt: now });
    this.#resumed.push(entry);
    lane.resumedCount += 1;
    this.#idle.remove(lane);
    return entry;
  }

  /** Whose turn it is; somebody waits. */
  head(now: number): Entry {
    const resumed = this.#resumed.top;
    if (resumed !== undefined) return resumed;
    const least = this.#hungry.top!;
    const bound = least.counter + this.#settings.fairnessBoundTokens;
    while (this.#parked.top !== undefined && this.#parked.top.counter <= bound) this.#urgent.push(this.#parked.pop()!);
    for (;;) {
      const lane = this.#urgent.top;
      if (lane === undefined) return least.first!;
      const entry = lane.deadlines.top!;
      if (!this.#isFeasible(entry.sequence, entry.deadlineAt!, now)) {
        // Too late to be met: from now on it waits like any other.
        lane.deadlines.pop();
        this.#placeUrgent(lane);
      } else if (lane.counter > bound) {
        this.#urgent.remove(lane);
        this.#parked.push(lane);
      } else {
        const first = lane.first!;
        return now - first.enqueuedAt > this.#settings.ageingMs ? first : entry;
      }
    }
  }

  /** The head when deadlines are left aside: who has waited longest among the least served. */
  get patientHead(): Entry | undefined {
    return this.#resumed.top ?? this.#hungry.top?.first;
  }

  /** Takes an entry out because it is admitted. */
  admit(entry: Entry): void {
    const least = this.#hungry.top;
    if (least !== undefined) this.#floor = Math.max(this.#floor, least.counter);
    entry.lane.runningCount += 1;
    this.remove(entry);
    this.#forgetIdle();
  }

  remove(entry: Entry): void {
    const { lane } = entry;
    this.#waitingCount -= 1;
    if (entry.resumedPlace !== undefined) {
      this.#resumed.remove(entry);
      lane.resumedCount -= 1;
    } else {
      if (entry.earlier === undefined) lane.first = entry.later;
      else entry.earlier.later = entry.later;
      if (entry.later === undefined) lane.last = entry.earlier;
      else entry.later.earlier = entry.earlier;
      lane.deadlines.remove(entry);
      lane.waitingCount -= 1;
      if (lane.waitingCount === 0) {
        this.#hungry.remove(lane);
        this.#lastLeft = lane;
      } else {
        this.#hungry.update(lane);
      }
      this.#placeUrgent(lane);
    }
    this.#restIfIdle(lane);
  }

  /** A sequence that was admitted left its row for good or waits again. */
  leave(sequence: Sequence): void {
    const lane = this.#laneOf(sequence);
    lane.runningCount -= 1;
    this.#restIfIdle(lane);
  }

  /** One more running sequence of a tenant. */
  join(sequence: Sequence): void {
    const lane = this.#laneOf(sequence);
    lane.runningCount += 1;
    this.#idle.remove(lane);
  }

  /** Puts tokens that were computed or generated on the tenant's account. */
  charge(sequence: Sequence, tokenCount: number): void {
    const lane = this.#laneOf(sequence);
    lane.counter += tokenCount / lane.weight;
    this.#hungry.update(lane);
    this.#parked.update(lane);
    this.#idle.update(lane);
    // The last of the tenant's work may have ended while the step that is paid for was running.
    this.#restIfIdle(lane);
  }

  services(): LaneService[] {
    return Array.from(this.#lanes.values(), ({ tenant, weight, counter, waitingCount, resumedCount, runningCount }) => ({
      ...{ tenant, weight, servedPerWeight: counter, waitingCount: waitingCount + resumedCount, runningCount },
    }));
  }

  /** Throws when a count or an order is broken. Walks everything. */
  check(): void {
    for (const heap of [this.#hungry, this.#urgent, this.#parked, this.#idle, this.#resumed]) heap.check();
    let inTier = this.#resumed.size;
    for (const lane of this.#lanes.values()) inTier += this.#checkLane(lane);
    if (inTier !== this.#waitingCount) throw new Error('Waiting queue: a class miscounts its entries.');
  }

  /** Entries in its line. */
  #checkLane(lane: Lane): number {
    lane.deadlines.check();
    let inLane = 0;
    for (let entry = lane.first; entry !== undefined; entry = entry.later) {
      if (entry.later !== undefined && entry.later.order < entry.order) throw new Error('Waiting queue: a lane is out of order.');
      inLane += 1;
    }
    if (inLane !== lane.waitingCount) throw new Error(`Waiting queue: lane ${lane.tenant} miscounts its entries.`);
    if (inLane > 0 !== this.#hungry.has(lane)) throw new Error(`Waiting queue: lane ${lane.tenant} is missing among the hungry.`);
    if (lane.deadlines.size > 0 !== (this.#urgent.has(lane) || this.#parked.has(lane)))
      throw new Error(`Waiting queue: the deadlines of lane ${lane.tenant} are not looked at.`);
    if (this.#urgent.has(lane) && this.#parked.has(lane)) throw new Error(`Waiting queue: lane ${lane.tenant} is urgent and parked.`);
    if (lane.runningCount < 0) throw new Error(`Waiting queue: lane ${lane.tenant} runs less than nothing.`);
    if (this.#idle.has(lane) !== (inLane + lane.resumedCount + lane.runningCount === 0))
      throw new Error(`Waiting queue: lane ${lane.tenant} is wrongly idle or busy.`);
    return inLane;
  }

  #enter(sequence: Sequence, lane: Lane, { order, enqueuedAt }: Pick<Entry, 'order' | 'enqueuedAt'>): Entry {
    this.#waitingCount += 1;
    return {
      ...{ sequence, lane, order, enqueuedAt, deadlineAt: undefined },
      ...{ deadlinePlace: undefined, resumedPlace: undefined, earlier: undefined, later: undefined },
    };
  }

  /** Puts a lane where its earliest deadline belongs. */
  #placeUrgent(lane: Lane): void {
    if (lane.deadlines.size === 0) {
      this.#urgent.remove(lane);
      this.#parked.remove(lane);
    } else if (this.#urgent.has(lane)) {
      this.#urgent.update(lane);
    } else if (!this.#parked.has(lane)) {
      this.#urgent.push(lane);
    }
  }

  #laneOf({ request }: Sequence): Lane {
    const { tenant } = request;
    let lane = this.#lanes.get(tenant);
    if (lane === undefined) {
      lane = makeLane(tenant, { weight: request.weight ?? 1, counter: this.#floor });
      this.#lanes.set(tenant, lane);
    }
    return lane;
  }

  #restIfIdle(lane: Lane): void {
    if (lane.waitingCount + lane.resumedCount + lane.runningCount > 0 || this.#idle.has(lane)) return;
    this.#idle.push(lane);
    this.#forgetIdle();
  }

  /** A lane that would start at the floor anyway need not be remembered. */
  #forgetIdle(): void {
    while (this.#idle.top !== undefined && this.#idle.top.counter <= this.#floor) this.#lanes.delete(this.#idle.pop()!.tenant);
  }
}

function makeLane(tenant: string, start: { weight: number; counter: number }): Lane {
  return {
    tenant,
    weight: start.weight,
    counter: start.counter,
    waitingCount: 0,
    resumedCount: 0,
    runningCount: 0,
    first: undefined,
    last: undefined,
    deadlines: new Heap<Entry>({
      before: (a, b) => isMoreUrgent(a, b),
      place: entry => entry.deadlinePlace,
      setPlace: (entry, place) => {
        entry.deadlinePlace = place;
      },
    }),
    counterPlace: undefined,
    urgentPlace: undefined,
    parkedPlace: undefined,
    idlePlace: undefined,
  };
}

function isMoreUrgent(a: Entry | undefined, b: Entry | undefined): boolean {
  const first = a?.deadlineAt ?? Number.POSITIVE_INFINITY;
  const second = b?.deadlineAt ?? Number.POSITIVE_INFINITY;
  return first !== second ? first < second : (a?.order ?? 0) < (b?.order ?? 0);
}
