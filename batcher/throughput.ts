/** Throughput: what a batcher does now: tokens a second since it was last asked, all requests together, and of one request. */

export interface ThroughputNow {
  /** Of prompts computed. */
  promptTokensPerSecondNow: number;
  /** Of answers. */
  generatedTokensPerSecondNow: number;
  /** Of one answer, as they come: on average over those that ran. */
  requestTokensPerSecondNow: number;
}

/** Asked again sooner, it repeats itself: a few steps are no rate. */
const SHORTEST_MS = 500;

export class Throughput {
  #promptTokens = 0;
  #generatedTokens = 0;
  #gaps = { count: 0, ms: 0 };
  #since: number;
  #last: ThroughputNow = { promptTokensPerSecondNow: 0, generatedTokensPerSecondNow: 0, requestTokensPerSecondNow: 0 };

  constructor(now: number) {
    this.#since = now;
  }

  prefilled(tokens: number): void {
    this.#promptTokens += tokens;
  }

  /** A token, and how long after the one before of the same answer; undefined for its first. */
  generated(sinceLastMs: number | undefined): void {
    this.#generatedTokens++;
    if (sinceLastMs === undefined) return;
    this.#gaps.count++;
    this.#gaps.ms += sinceLastMs;
  }

  read(now: number): ThroughputNow {
    const ms = now - this.#since;
    if (ms < SHORTEST_MS) return this.#last;
    const perSecond = (count: number, over: number) => (over > 0 ? (1000 * count) / over : 0);
    this.#last = {
      promptTokensPerSecondNow: perSecond(this.#promptTokens, ms),
      generatedTokensPerSecondNow: perSecond(this.#generatedTokens, ms),
      requestTokensPerSecondNow: perSecond(this.#gaps.count, this.#gaps.ms),
    };
    this.#promptTokens = 0;
    this.#generatedTokens = 0;
    this.#gaps = { count: 0, ms: 0 };
    this.#since = now;
    return this.#last;
  }
}
