/**
 * SteadyClock: epoch milliseconds that only go on, for durations and deadlines. The runtime has no clock but the one that is set by hand and by
 * network time; when that jumps, or the process was stopped for a while, this one goes on from where it was.
 */

/** Longer than any pause between two looks while there is something to time; a step beyond it, or back, is none of time's. */
const MAX_STEP_MS = 30_000;

export class SteadyClock {
  readonly #wall: () => number;
  #seen: number;
  #shiftMs = 0;

  constructor(wall: () => number = () => Date.now()) {
    this.#wall = wall;
    this.#seen = wall();
  }

  now(): number {
    const wall = this.#wall();
    const step = wall - this.#seen;
    this.#seen = wall;
    if (step < 0 || step > MAX_STEP_MS) this.#shiftMs -= step;
    return wall + this.#shiftMs;
  }
}
