/** RateMeter: tokens per second over the last moments, of one stream or of several together. */

const WINDOW_MS = 3_000;
/** Nothing is told from a shorter time: one token would be thousands a second. */
const LEAST_MS = 250;

export class RateMeter {
  #arrivals: { at: number; tokenCount: number }[] = [];
  #startedAt: number | undefined;

  /** `now` in milliseconds, never going back. */
  add(tokenCount: number, now: number): void {
    this.#forget(now);
    // After a silence it begins anew; the time before the first token is no part of the rate, nor is that token.
    if (this.#arrivals.length === 0) this.#startedAt = undefined;
    if (this.#startedAt === undefined) {
      this.#startedAt = now;
      this.#arrivals.push({ at: now, tokenCount: 0 });
      return;
    }
    this.#arrivals.push({ at: now, tokenCount });
  }

  /** Undefined while there is nothing to tell it from. */
  rate(now: number): number | undefined {
    this.#forget(now);
    if (this.#startedAt === undefined || this.#arrivals.length < 2) return undefined;
    const overMs = Math.min(WINDOW_MS, now - this.#startedAt);
    if (overMs < LEAST_MS) return undefined;
    return (this.#arrivals.reduce((sum, { tokenCount }) => sum + tokenCount, 0) / overMs) * 1_000;
  }

  #forget(now: number): void {
    const first = this.#arrivals.findIndex(({ at }) => at > now - WINDOW_MS);
    this.#arrivals = first === -1 ? [] : this.#arrivals.slice(first);
  }
}
