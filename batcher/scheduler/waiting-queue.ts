/**
 * WaitingQueue: who is admitted next, and what each tenant has been served.
 * Guarantee: within a class, of two tenants that both wait all the while, the difference of what they are served per weight stays under
 * fairnessBoundTokens + what the requests that run at once can cost per weight; and every entry's turn comes.
 *
 * The order, from the outside in:
 * 1. class: priority, default, flex; but one of `agedShare` admissions goes to a lower class whose head has waited `ageingMs`;
 * 2. preempted sequences of the class, first admitted first: their clients are reading;
 * 3. the earliest deadline that can still be met, unless its tenant is more than `fairnessBoundTokens` ahead of the least served one;
 * 4. the least served tenant (virtual token counter: tokens computed and generated, divided by weight). A tenant that comes back starts
 *    at the counter of those who waited, so that nobody saves up;
 * 5. first come, first served. A head that has waited `ageingMs` goes before its tenant's deadlines.
 *
 * A lane is one tenant in one class. Every operation is logarithmic at most; nothing walks the queue.
 */
import { SERVICE_CLASSES, type ServiceClass } from '../../shared/job.ts';
import { Heap } from './heap.ts';
import type { SchedulerSettings } from './scheduler-settings.ts';
import type { Sequence } from './sequence.ts';

interface Entry {
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
  rank: number;
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

/** One class of service: its lanes in the orders that matter. */
interface Tier {
  lanes: Map<string, Lane>;
  /** Lanes with waiting entries, least served first. */
  hungry: Heap<Lane>;
  /** Lanes with a deadline that may be met, earliest first, except those too far ahead. */
  urgent: Heap<Lane>;
  /** Lanes with a deadline that are too far ahead, least served first. */
  parked: Heap<Lane>;
  /** Lanes with nothing waiting or running, least served first: forgotten when the floor passes them. */
  idle: Heap<Lane>;
  resumed: Heap<Entry>;
  /** What a tenant that comes back starts with at least; never falls. */
  floor: number;
  /** The last lane whose line became empty. */
  lastLeft: Lane | undefined;
  waitingCount: number;
}

export interface TenantService {
  tenant: string;
  serviceClass: ServiceClass;
  weight: number;
  /** Tokens computed and generated per weight, above the start that a newcomer gets. */
  servedPerWeight: number;
  waitingCount: number;
  runningCount: number;
}

export class WaitingQueue {
  readonly #settings: SchedulerSettings;
  readonly #tiers: Tier[] = SERVICE_CLASSES.map(makeTier);
  readonly #entries = new Map<Sequence, Entry>();
  #order = 0;
  #waitingTokens = 0;
  #sinceAged = 0;
  #msPerToken = 0;

  constructor(settings: SchedulerSettings) {
    this.#settings = settings;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Known tokens of all that wait. */
  get waitingTokens(): number {
    return this.#waitingTokens;
  }

  /** The measured rate, by which it is judged whether a deadline can be met; 0 judges by the deadline alone. */
  setPrefillRate(tokensPerSecond: number): void {
    this.#msPerToken = tokensPerSecond > 0 ? 1000 / tokensPerSecond : 0;
  }

  /** A new request, at the end of its tenant's line. */
  push(sequence: Sequence, now: number): void {
    const lane = this.#laneOf(sequence);
    lane.weight = sequence.request.weight ?? 1;
    const entry = this.#enter(sequence, lane, Math.min(now, sequence.request.arrivedAt));
    entry.earlier = lane.last;
    if (lane.last === undefined) lane.first = entry;
    else lane.last.later = entry;
    lane.last = entry;
    const deadlineAt = sequence.request.ttftDeadlineAt;
    if (deadlineAt !== undefined && this.#isFeasible(entry, deadlineAt, now)) {
      entry.deadlineAt = deadlineAt;
      lane.deadlines.push(entry);
    }
    const tier = this.#tiers[lane.rank]!;
    if (lane.waitingCount === 0) {
      // With nobody waiting nobody is behind: the newcomer starts where the last one left.
      if (tier.hungry.size === 0 && tier.lastLeft !== undefined) tier.floor = Math.max(tier.floor, tier.lastLeft.counter);
      lane.counter = Math.max(lane.counter, tier.floor);
      tier.idle.remove(lane);
      lane.waitingCount = 1;
      tier.hungry.push(lane);
      this.#forgetIdle(tier);
    } else {
      lane.waitingCount += 1;
    }
    this.#placeUrgent(tier, lane);
  }

  /** A sequence that lost its row. It was running, and waits before all new ones of its class. */
  pushPreempted(sequence: Sequence, now: number): void {
    const lane = this.#laneOf(sequence);
    const entry = this.#enter(sequence, lane, now);
    const tier = this.#tiers[lane.rank]!;
    tier.resumed.push(entry);
    lane.resumedCount += 1;
    tier.idle.remove(lane);
  }

  /** Whose turn it is. Asking again gives the same answer until something changes. */
  head(now: number): Sequence | undefined {
    let top = -1;
    for (let rank = 0; rank < this.#tiers.length; rank += 1) {
      if (this.#tiers[rank]!.waitingCount > 0) {
        top = rank;
        break;
      }
    }
    if (top === -1) return undefined;
    if (this.#sinceAged >= this.#settings.agedShare - 1) {
      let aged: Entry | undefined;
      for (let rank = top + 1; rank < this.#tiers.length; rank += 1) {
        const entry = patientHead(this.#tiers[rank]!);
        if (
          entry !== undefined &&
          now - entry.enqueuedAt > this.#settings.ageingMs &&
          (aged === undefined || entry.enqueuedAt < aged.enqueuedAt)
        )
          aged = entry;
      }
      if (aged !== undefined) return aged.sequence;
    }
    return this.#headOf(this.#tiers[top]!, now).sequence;
  }

  /** Takes the head out because it is admitted. */
  admit(sequence: Sequence): void {
    const { lane } = this.#entry(sequence);
    const tier = this.#tiers[lane.rank]!;
    const isPassedOver = this.#tiers.some((other, rank) => rank > lane.rank && other.waitingCount > 0);
    const isOvertaking = this.#tiers.some((other, rank) => rank < lane.rank && other.waitingCount > 0);
    if (isOvertaking) this.#sinceAged = 0;
    else if (isPassedOver) this.#sinceAged += 1;
    const least = tier.hungry.top;
    if (least !== undefined) tier.floor = Math.max(tier.floor, least.counter);
    lane.runningCount += 1;
    this.remove(sequence);
    this.#forgetIdle(tier);
  }

  /** Takes an entry out: admitted, cancelled or ended. Nothing happens when it does not wait. */
  remove(sequence: Sequence): void {
    const entry = this.#entries.get(sequence);
    if (entry === undefined) return;
    const { lane } = entry;
    const tier = this.#tiers[lane.rank]!;
    this.#entries.delete(sequence);
    this.#waitingTokens -= sequence.knownCount;
    tier.waitingCount -= 1;
    if (entry.resumedPlace !== undefined) {
      tier.resumed.remove(entry);
      lane.resumedCount -= 1;
    } else {
      if (entry.earlier === undefined) lane.first = entry.later;
      else entry.earlier.later = entry.later;
      if (entry.later === undefined) lane.last = entry.earlier;
      else entry.later.earlier = entry.earlier;
      lane.deadlines.remove(entry);
      lane.waitingCount -= 1;
      if (lane.waitingCount === 0) {
        tier.hungry.remove(lane);
        tier.lastLeft = lane;
      } else {
        tier.hungry.update(lane);
      }
      this.#placeUrgent(tier, lane);
    }
    this.#restIfIdle(tier, lane);
  }

  /** A sequence that was taken out by admit left its row for good or waits again. */
  leave(sequence: Sequence): void {
    const lane = this.#laneOf(sequence);
    lane.runningCount -= 1;
    this.#restIfIdle(this.#tiers[lane.rank]!, lane);
  }

  /** One more running sequence of the same request, forked from one that was admitted. */
  join(sequence: Sequence): void {
    const lane = this.#laneOf(sequence);
    lane.runningCount += 1;
    this.#tiers[lane.rank]!.idle.remove(lane);
  }

  /** Puts tokens that were computed or generated on the tenant's account. */
  charge(sequence: Sequence, tokenCount: number): void {
    if (tokenCount <= 0) return;
    const lane = this.#laneOf(sequence);
    const tier = this.#tiers[lane.rank]!;
    lane.counter += tokenCount / lane.weight;
    tier.hungry.update(lane);
    tier.parked.update(lane);
    tier.idle.update(lane);
    // The last of the tenant's work may have ended while the step that is paid for was running.
    this.#restIfIdle(tier, lane);
  }

  /** What the tenants were served that are remembered: all with waiting or running work, and those ahead of the others. */
  tenants(): TenantService[] {
    const services: TenantService[] = [];
    for (const tier of this.#tiers) {
      for (const lane of tier.lanes.values()) {
        services.push({
          tenant: lane.tenant,
          serviceClass: SERVICE_CLASSES[lane.rank]!,
          weight: lane.weight,
          servedPerWeight: lane.counter,
          waitingCount: lane.waitingCount + lane.resumedCount,
          runningCount: lane.runningCount,
        });
      }
    }
    return services;
  }

  /** Throws when a count or an order is broken. Walks everything. */
  check(): void {
    let waiting = 0;
    let tokens = 0;
    for (const tier of this.#tiers) {
      for (const heap of [tier.hungry, tier.urgent, tier.parked, tier.idle, tier.resumed]) heap.check();
      let inTier = tier.resumed.size;
      for (const lane of tier.lanes.values()) {
        lane.deadlines.check();
        let inLane = 0;
        for (let entry = lane.first; entry !== undefined; entry = entry.later) {
          if (entry.later !== undefined && entry.later.order < entry.order) throw new Error('Waiting queue: a lane is out of order.');
          inLane += 1;
        }
        if (inLane !== lane.waitingCount) throw new Error(`Waiting queue: lane ${lane.tenant} miscounts its entries.`);
        if (inLane > 0 !== tier.hungry.has(lane)) throw new Error(`Waiting queue: lane ${lane.tenant} is missing among the hungry.`);
        if (lane.deadlines.size > 0 !== (tier.urgent.has(lane) || tier.parked.has(lane)))
          throw new Error(`Waiting queue: the deadlines of lane ${lane.tenant} are not looked at.`);
        if (tier.urgent.has(lane) && tier.parked.has(lane)) throw new Error(`Waiting queue: lane ${lane.tenant} is urgent and parked.`);
        if (lane.runningCount < 0) throw new Error(`Waiting queue: lane ${lane.tenant} runs less than nothing.`);
        if (tier.idle.has(lane) !== (inLane + lane.resumedCount + lane.runningCount === 0))
          throw new Error(`Waiting queue: lane ${lane.tenant} is wrongly idle or busy.`);
        inTier += inLane;
      }
      if (inTier !== tier.waitingCount) throw new Error('Waiting queue: a class miscounts its entries.');
      waiting += inTier;
    }
    for (const sequence of this.#entries.keys()) tokens += sequence.knownCount;
    if (waiting !== this.#entries.size) throw new Error('Waiting queue: entries are lost.');
    if (tokens !== this.#waitingTokens) throw new Error('Waiting queue: waiting tokens are miscounted.');
  }

  #enter(sequence: Sequence, lane: Lane, now: number): Entry {
    if (this.#entries.has(sequence)) throw new Error(`Sequence ${sequence.id} waits already.`);
    this.#order += 1;
    const entry: Entry = {
      sequence,
      lane,
      order: this.#order,
      enqueuedAt: now,
      deadlineAt: undefined,
      deadlinePlace: undefined,
      resumedPlace: undefined,
      earlier: undefined,
      later: undefined,
    };
    this.#entries.set(sequence, entry);
    this.#waitingTokens += sequence.knownCount;
    this.#tiers[lane.rank]!.waitingCount += 1;
    return entry;
  }

  #entry(sequence: Sequence): Entry {
    const entry = this.#entries.get(sequence);
    if (entry === undefined) throw new Error(`Sequence ${sequence.id} does not wait.`);
    return entry;
  }

  #headOf(tier: Tier, now: number): Entry {
    const resumed = tier.resumed.top;
    if (resumed !== undefined) return resumed;
    const least = tier.hungry.top!;
    const bound = least.counter + this.#settings.fairnessBoundTokens;
    while (tier.parked.top !== undefined && tier.parked.top.counter <= bound) tier.urgent.push(tier.parked.pop()!);
    for (;;) {
      const lane = tier.urgent.top;
      if (lane === undefined) return least.first!;
      const entry = lane.deadlines.top!;
      if (!this.#isFeasible(entry, entry.deadlineAt!, now)) {
        // Too late to be met: from now on it waits like any other.
        lane.deadlines.pop();
        this.#placeUrgent(tier, lane);
      } else if (lane.counter > bound) {
        tier.urgent.remove(lane);
        tier.parked.push(lane);
      } else {
        const first = lane.first!;
        return now - first.enqueuedAt > this.#settings.ageingMs ? first : entry;
      }
    }
  }

  #isFeasible(entry: Entry, deadlineAt: number, now: number): boolean {
    return now + entry.sequence.knownCount * this.#msPerToken <= deadlineAt;
  }

  /** Puts a lane where its earliest deadline belongs. */
  #placeUrgent(tier: Tier, lane: Lane): void {
    if (lane.deadlines.size === 0) {
      tier.urgent.remove(lane);
      tier.parked.remove(lane);
    } else if (tier.urgent.has(lane)) {
      tier.urgent.update(lane);
    } else if (!tier.parked.has(lane)) {
      tier.urgent.push(lane);
    }
  }

  #laneOf(sequence: Sequence): Lane {
    const { tenant, serviceClass } = sequence.request;
    const rank = SERVICE_CLASSES.indexOf(serviceClass);
    const tier = this.#tiers[rank]!;
    let lane = tier.lanes.get(tenant);
    if (lane === undefined) {
      lane = makeLane(tenant, rank, { weight: sequence.request.weight ?? 1, counter: tier.floor });
      tier.lanes.set(tenant, lane);
    }
    return lane;
  }

  #restIfIdle(tier: Tier, lane: Lane): void {
    if (lane.waitingCount + lane.resumedCount + lane.runningCount > 0 || tier.idle.has(lane)) return;
    tier.idle.push(lane);
    this.#forgetIdle(tier);
  }

  /** A lane that would start at the floor anyway need not be remembered. */
  #forgetIdle(tier: Tier): void {
    while (tier.idle.top !== undefined && tier.idle.top.counter <= tier.floor) tier.lanes.delete(tier.idle.pop()!.tenant);
  }
}

/** The head when deadlines are left aside: who has waited longest among the least served. */
function patientHead(tier: Tier): Entry | undefined {
  return tier.resumed.top ?? tier.hungry.top?.first;
}

function makeTier(): Tier {
  return {
    lanes: new Map(),
    hungry: new Heap<Lane>({
      before: (a, b) => (a.counter !== b.counter ? a.counter < b.counter : (a.first?.order ?? 0) < (b.first?.order ?? 0)),
      place: lane => lane.counterPlace,
      setPlace: (lane, place) => {
        lane.counterPlace = place;
      },
    }),
    urgent: new Heap<Lane>({
      before: (a, b) => isMoreUrgent(a.deadlines.top, b.deadlines.top),
      place: lane => lane.urgentPlace,
      setPlace: (lane, place) => {
        lane.urgentPlace = place;
      },
    }),
    parked: new Heap<Lane>({
      before: (a, b) => a.counter < b.counter,
      place: lane => lane.parkedPlace,
      setPlace: (lane, place) => {
        lane.parkedPlace = place;
      },
    }),
    idle: new Heap<Lane>({
      before: (a, b) => a.counter < b.counter,
      place: lane => lane.idlePlace,
      setPlace: (lane, place) => {
        lane.idlePlace = place;
      },
    }),
    resumed: new Heap<Entry>({
      before: (a, b) => a.sequence.admissionOrder! < b.sequence.admissionOrder!,
      place: entry => entry.resumedPlace,
      setPlace: (entry, place) => {
        entry.resumedPlace = place;
      },
    }),
    floor: 0,
    lastLeft: undefined,
    waitingCount: 0,
  };
}

function makeLane(tenant: string, rank: number, start: { weight: number; counter: number }): Lane {
  return {
    tenant,
    rank,
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
