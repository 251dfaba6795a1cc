/** StepRates: this host's measured speeds, aggregate tokens per second of prefill and of decode, as moving averages over recent work. */

/** Weight of one run, by the share of the window that its duration is. */
const WINDOW_MS = 5_000;

class MovingRate {
  #tokens = 0;
  #ms = 0;

  add(tokens: number, ms: number): void {
    const kept = Math.exp(-ms / WINDOW_MS);
    this.#tokens = this.#tokens * kept + tokens;
    this.#ms = this.#ms * kept + ms;
  }

  /** 0 until the first measurement. */
  get perSecond(): number {
    return this.#ms > 0 ? (this.#tokens / this.#ms) * 1000 : 0;
  }
}

export class StepRates {
  readonly #prefill = new MovingRate();
  readonly #decode = new MovingRate();

  prefilled(tokens: number, ms: number): void {
    this.#prefill.add(tokens, ms);
  }

  decoded(tokens: number, ms: number): void {
    this.#decode.add(tokens, ms);
  }

  get prefillTokensPerSecond(): number {
    return this.#prefill.perSecond;
  }

  get decodeTokensPerSecond(): number {
    return this.#decode.perSecond;
  }
}
