/**
 * EventRate: how many events a second there have been of late, each counting less the longer ago it was. Right from the first seconds on: what was
 * before the start is not taken for silence.
 */

/** An event this long ago counts 1/e. */
const WINDOW_MS = 60_000;
/** A shorter past says too little to divide by. */
const LEAST_MS = 10_000;

export class EventRate {
  readonly #clock: () => number;
  readonly #startedAt: number;
  #countedAt: number;
  #count = 0;

  /** Milliseconds of a clock that nobody sets. */
  constructor(clock: () => number) {
    this.#clock = clock;
    this.#startedAt = clock();
    this.#countedAt = this.#startedAt;
  }

  happened(): void {
    this.#age();
    this.#count += 1;
  }

  get perSecond(): number {
    this.#age();
    const pastMs = Math.max(LEAST_MS, this.#countedAt - this.#startedAt);
    return this.#count / ((WINDOW_MS / 1000) * (1 - Math.exp(-pastMs / WINDOW_MS)));
  }

  #age(): void {
    const now = this.#clock();
    this.#count *= Math.exp(-Math.max(0, now - this.#countedAt) / WINDOW_MS);
    this.#countedAt = now;
  }
}
