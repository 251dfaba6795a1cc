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
 * The order within a class is ServiceTier's. Every operation is logarithmic at most; nothing walks the queue.
 */
import { SERVICE_CLASSES, type ServiceClass } from '../../shared/job.ts';
import { rankOf } from './running-set.ts';
import type { SchedulerSettings } from './scheduler-settings.ts';
import type { Sequence } from './sequence.ts';
import { type Entry, type LaneService, ServiceTier } from './service-tier.ts';

export interface TenantService extends LaneService {
  serviceClass: ServiceClass;
}

export class WaitingQueue {
  readonly #settings: SchedulerSettings;
  /** By rank. */
  readonly #tiers: readonly ServiceTier[];
  readonly #entries = new Map<Sequence, Entry>();
  #order = 0;
  #waitingTokens = 0;
  #sinceAged = 0;
  #msPerToken = 0;

  constructor(settings: SchedulerSettings) {
    this.#settings = settings;
    const isFeasible = ({ knownCount }: Sequence, deadlineAt: number, now: number) => now + knownCount * this.#msPerToken <= deadlineAt;
    this.#tiers = SERVICE_CLASSES.map(() => new ServiceTier({ settings, isFeasible }));
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
    this.#enter(sequence, order => this.#tierOf(sequence).push(sequence, order, now));
  }

  /** A sequence that lost its row. It was running, and waits before all new ones of its class. */
  pushPreempted(sequence: Sequence, now: number): void {
    this.#enter(sequence, order => this.#tierOf(sequence).pushPreempted(sequence, order, now));
  }

  /** Whose turn it is. Asking again gives the same answer until something changes. */
  head(now: number): Sequence | undefined {
    const top = this.#tiers.findIndex(tier => tier.waitingCount > 0);
    if (top === -1) return undefined;
    const aged = this.#sinceAged >= this.#settings.agedShare - 1 ? this.#agedBelow(top, now) : undefined;
    return (aged ?? this.#tiers[top]!.head(now)).sequence;
  }

  /** Takes the head out because it is admitted. */
  admit(sequence: Sequence): void {
    const entry = this.#entries.get(sequence);
    if (entry === undefined) throw new Error(`Sequence ${sequence.id} does not wait.`);
    const own = rankOf(sequence);
    const isPassedOver = this.#tiers.some((other, rank) => rank > own && other.waitingCount > 0);
    const isOvertaking = this.#tiers.some((other, rank) => rank < own && other.waitingCount > 0);
    if (isOvertaking) this.#sinceAged = 0;
    else if (isPassedOver) this.#sinceAged += 1;
    this.#forget(sequence);
    this.#tiers[own]!.admit(entry);
  }

  /** Takes an entry out: cancelled or ended. Nothing happens when it does not wait. */
  remove(sequence: Sequence): void {
    const entry = this.#entries.get(sequence);
    if (entry === undefined) return;
    this.#forget(sequence);
    this.#tierOf(sequence).remove(entry);
  }

  /** A sequence that was taken out by admit left its row for good or waits again. */
  leave(sequence: Sequence): void {
    this.#tierOf(sequence).leave(sequence);
  }

  /** One more running sequence of the same request, forked from one that was admitted. */
  join(sequence: Sequence): void {
    this.#tierOf(sequence).join(sequence);
  }

  /** Puts tokens that were computed or generated on the tenant's account. */
  charge(sequence: Sequence, tokenCount: number): void {
    if (tokenCount > 0) this.#tierOf(sequence).charge(sequence, tokenCount);
  }

  /** What the tenants were served that are remembered: all with waiting or running work, and those ahead of the others. */
  tenants(): TenantService[] {
    return this.#tiers.flatMap((tier, rank) => tier.services().map(service => ({ ...service, serviceClass: SERVICE_CLASSES[rank]! })));
  }

  /** Throws when a count or an order is broken. Walks everything. */
  check(): void {
    for (const tier of this.#tiers) tier.check();
    const waiting = this.#tiers.reduce((sum, tier) => sum + tier.waitingCount, 0);
    if (waiting !== this.#entries.size) throw new Error('Waiting queue: entries are lost.');
    let tokens = 0;
    for (const sequence of this.#entries.keys()) tokens += sequence.knownCount;
    if (tokens !== this.#waitingTokens) throw new Error('Waiting queue: waiting tokens are miscounted.');
  }

  /** The longest of those lower heads that have waited long enough. */
  #agedBelow(top: number, now: number): Entry | undefined {
    let aged: Entry | undefined;
    for (let rank = top + 1; rank < this.#tiers.length; rank += 1) {
      const entry = this.#tiers[rank]!.patientHead;
      if (entry === undefined || now - entry.enqueuedAt <= this.#settings.ageingMs) continue;
      if (aged === undefined || entry.enqueuedAt < aged.enqueuedAt) aged = entry;
    }
    return aged;
  }

  #enter(sequence: Sequence, push: (order: number) => Entry): void {
    if (this.#entries.has(sequence)) throw new Error(`Sequence ${sequence.id} waits already.`);
    this.#order += 1;
    this.#entries.set(sequence, push(this.#order));
    this.#waitingTokens += sequence.knownCount;
  }

  #forget(sequence: Sequence): void {
    this.#entries.delete(sequence);
    this.#waitingTokens -= sequence.knownCount;
  }

  #tierOf(sequence: Sequence): ServiceTier {
    return this.#tiers[rankOf(sequence)]!;
  }
}
