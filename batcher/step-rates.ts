/**
 * StepRates: this host's measured speeds, over recent work: aggregate tokens per second of prefill and of decode, and how long a prefill
 * chunk of a given size takes. A chunk's time is a fixed part and a part by token, fitted by least squares over recent chunks, so that
 * many small chunks do not make long ones look slow.
 */

/** Work that lies this far back counts 1/e. */
const WINDOW_MS = 5_000;

/** Sums over recent runs, each decaying with the time spent since. */
class RecentRuns {
  #weight = 0;
  #tokens = 0;
  #ms = 0;
  #tokensSquared = 0;
  #tokensMs = 0;

  add(tokens: number, ms: number): void {
    const kept = Math.exp(-ms / WINDOW_MS);
    this.#weight = this.#weight * kept + 1;
    this.#tokens = this.#tokens * kept + tokens;
    this.#ms = this.#ms * kept + ms;
    this.#tokensSquared = this.#tokensSquared * kept + tokens * tokens;
    this.#tokensMs = this.#tokensMs * kept + tokens * ms;
  }

  /** 0 until the first measurement. */
  get perSecond(): number {
    return this.#ms > 0 ? (this.#tokens / this.#ms) * 1000 : 0;
  }

  /** Fixed and per-token part of a run's time; undefined until the first measurement. */
  get cost(): { fixedMs: number; tokenMs: number } | undefined {
    if (this.#weight === 0) return undefined;
    const spread = this.#weight * this.#tokensSquared - this.#tokens * this.#tokens;
    // All runs of about one size: the line through the origin.
    const isFlat = spread < 1e-3 * this.#tokens * this.#tokens;
    const slope = isFlat ? this.#ms / this.#tokens : (this.#weight * this.#tokensMs - this.#tokens * this.#ms) / spread;
    const tokenMs = Math.min(Math.max(slope, 0.05 * (this.#ms / this.#tokens)), this.#ms / this.#tokens);
    return { fixedMs: Math.max(0, (this.#ms - tokenMs * this.#tokens) / this.#weight), tokenMs };
  }
}

export class StepRates {
  readonly #prefill = new RecentRuns();
  readonly #decode = new RecentRuns();

  prefilled(tokens: number, ms: number): void {
    this.#prefill.add(tokens, ms);
  }

  decoded(tokens: number, ms: number): void {
    this.#decode.add(tokens, ms);
  }

  /** Of large chunks, where the fixed part does not count; 0 until the first measurement. */
  get prefillTokensPerSecond(): number {
    const cost = this.#prefill.cost;
    return cost === undefined ? 0 : 1000 / cost.tokenMs;
  }

  get decodeTokensPerSecond(): number {
    return this.#decode.perSecond;
  }

  /** Tokens of a prefill chunk that takes about this long; undefined until the first measurement. */
  chunkTokensWithin(ms: number): number | undefined {
    const cost = this.#prefill.cost;
    return cost === undefined ? undefined : Math.max(0, (ms - cost.fixedMs) / cost.tokenMs);
  }
}
