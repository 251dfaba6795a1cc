/**
 * SpeculationGate: decides how many draft tokens a sequence may verify in the next step, from what steps were measured to cost on this host and how
 * many drafts of this sequence were right; 0 where plain decoding is expected to be as fast. Pure: times are handed in.
 *
 * With a rows in the decode batch, a step costs D(a) and gives a tokens; taking one row out to verify k drafts makes it D(a - 1) + V(k + 1) for
 * a - 1 + E(k) tokens, where E(k) = 1 + p + p^2 + .. + p^k at an acceptance of p. The k of the best tokens per time is taken if it gains enough.
 */

/** Weight of a new measurement in the running means. */
const COST_WEIGHT = 0.1;
const ACCEPTANCE_WEIGHT = 0.12;
/** A sequence starts with this estimate: good enough to be tried, quickly lost if wrong. */
const FIRST_ACCEPTANCE = 0.5;
/** Tokens between two tries of a sequence that does not pay: from the first, doubled after each that failed, up to the last. */
const FIRST_PAUSE = 16;
const LAST_PAUSE = 512;
/** Drafts of such a try, which costs little and still tells. */
const TRIAL_DRAFTS = 2;
/** Where even drafts that are all right would not pay, one due try in this many is made all the same: the costs may have changed, or been measured badly. */
const HOPELESS_TRIES = 1_000;

export interface SpeculationGateSettings {
  /** Most drafts a step, from 1. */
  maxDrafts: number;
  /** Least expected gain in tokens per time, as a ratio: 1.05 asks for 5 % more, 0 for drafts whatever they cost. */
  minGain: number;
}

/** A running mean per small count. */
class CostByCount {
  readonly #costs: (number | undefined)[] = [];

  observe(count: number, ms: number): void {
    const old = this.#costs[count];
    this.#costs[count] = old === undefined ? ms : old + COST_WEIGHT * (ms - old);
  }

  /** Measured, or on the line between (else through) the nearest measured counts, never falling; undefined while nothing is measured. */
  at(count: number): number | undefined {
    const exact = this.#costs[count];
    if (exact !== undefined) return exact;
    let below = count;
    while (below >= 0 && this.#costs[below] === undefined) below--;
    let above = count;
    while (above < this.#costs.length && this.#costs[above] === undefined) above++;
    const low = this.#costs[below];
    const high = this.#costs[above];
    if (low === undefined) return high;
    if (high === undefined) return low;
    return low + ((high - low) * (count - below)) / (above - below);
  }
}

/** What one sequence's drafts came to. Keep one with each sequence; it starts anew when the sequence is taken up elsewhere. */
export class DraftRecord {
  #acceptance = FIRST_ACCEPTANCE;
  #pause = FIRST_PAUSE;
  #tokensUntilTry = 0;

  /** Estimated probability that a draft token is right, given that those before it were. */
  get acceptance(): number {
    return this.#acceptance;
  }

  get isDueForTry(): boolean {
    return this.#tokensUntilTry <= 0;
  }

  /** A step without drafts gave this many tokens. */
  observePlain(tokenCount: number): void {
    this.#tokensUntilTry -= tokenCount;
  }

  /** Of `drafted` tokens the first `accepted` were right. */
  observe(drafted: number, accepted: number): void {
    // What comes after the first wrong one was not tried.
    const tried = Math.min(drafted, accepted + 1);
    for (let i = 0; i < tried; i++) this.#acceptance += ACCEPTANCE_WEIGHT * ((i < accepted ? 1 : 0) - this.#acceptance);
    if (accepted === drafted) {
      this.#pause = FIRST_PAUSE;
      this.#tokensUntilTry = 0;
    } else {
      this.#tokensUntilTry = this.#pause;
      this.#pause = Math.min(LAST_PAUSE, this.#pause * 2);
    }
  }
}

export class SpeculationGate {
  readonly #settings: SpeculationGateSettings;
  readonly #decode = new CostByCount();
  readonly #verify = new CostByCount();
  #hopelessTries = 0;

  constructor(settings: SpeculationGateSettings) {
    if (!(settings.maxDrafts >= 1) || !(settings.minGain >= 0)) throw new RangeError('maxDrafts is at least 1, minGain at least 0.');
    this.#settings = settings;
  }

  /** A decode batch of `rowCount` rows took `ms`. */
  observeDecode(rowCount: number, ms: number): void {
    this.#decode.observe(rowCount, ms);
  }

  /** A verification of one sequence that fed `tokenCount` tokens (drafts + 1) took `ms`. */
  observeVerify(tokenCount: number, ms: number): void {
    this.#verify.observe(tokenCount, ms);
  }

  /** Drafts that a sequence may verify in the next step, where without them it would be one of `rowCount` rows (from 1) of the decode batch. */
  draftCount(record: DraftRecord, rowCount: number): number {
    const plainMs = this.#decode.at(rowCount);
    if (plainMs === undefined) return 0;
    // One row fewer saves nothing until it is measured to.
    const restMs = rowCount === 1 ? 0 : Math.min(plainMs, this.#decode.at(rowCount - 1) ?? plainMs);
    const plainRate = rowCount / plainMs;
    let best = 0;
    let bestRate = plainRate * this.#settings.minGain;
    let tokens = 1;
    let power = 1;
    for (let drafts = 1; drafts <= this.#settings.maxDrafts; drafts++) {
      power *= record.acceptance;
      tokens += power;
      // Not measured yet: as dear as one row alone, so that it is tried.
      const verifyMs = this.#verify.at(drafts + 1) ?? this.#decode.at(1) ?? plainMs;
      const rate = (rowCount - 1 + tokens) / (restMs + verifyMs);
      if (rate > bestRate) {
        best = drafts;
        bestRate = rate;
      }
    }
    if (best > 0) return best;
    if (!record.isDueForTry) return 0;
    if (!this.#couldPay(rowCount, plainRate, restMs) && ++this.#hopelessTries % HOPELESS_TRIES !== 0) return 0;
    return Math.min(TRIAL_DRAFTS, this.#settings.maxDrafts);
  }

  /** Whether drafts that are all right would gain at all. */
  #couldPay(rowCount: number, plainRate: number, restMs: number): boolean {
    for (let drafts = 1; drafts <= this.#settings.maxDrafts; drafts++) {
      const verifyMs = this.#verify.at(drafts + 1);
      if (verifyMs === undefined || (rowCount + drafts) / (restMs + verifyMs) > plainRate * this.#settings.minGain) return true;
    }
    return false;
  }
}
