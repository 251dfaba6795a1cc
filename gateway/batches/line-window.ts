/**
 * LineWindow: how many lines of a tenant's batches may be under way now: as many as are let in, up to a bound. A refusal closes it to what is
 * under way, so that what is in the way for one line is not asked about for every other; each answer opens it by one, and so does a while.
 */
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;

export class LineWindow {
  readonly #most: number;
  #size: number;
  #runningCount = 0;
  #pauseMs = FIRST_PAUSE_MS;
  /** When one more may be tried than there is room for. */
  #triedAgainAt = 0;

  constructor(most: number) {
    this.#most = most;
    this.#size = most;
  }

  /** Lines under way. */
  get runningCount(): number {
    return this.#runningCount;
  }

  get triedAgainAt(): number {
    return this.#triedAgainAt;
  }

  /** How many more may be begun. */
  room(now: number): number {
    const free = this.#size - this.#runningCount;
    if (free > 0) return free;
    return now >= this.#triedAgainAt && this.#runningCount < this.#most ? 1 : 0;
  }

  begin(now: number): void {
    this.#runningCount++;
    if (this.#runningCount <= this.#size) return;
    this.#size = this.#runningCount;
    this.#triedAgainAt = now + FIRST_PAUSE_MS;
  }

  answered(): void {
    this.#runningCount--;
    this.#size = Math.min(this.#most, this.#size + 1);
    this.#pauseMs = FIRST_PAUSE_MS;
  }

  /** It was not let in; `afterMs` is when it may be, where that was said. */
  refused(now: number, afterMs: number | undefined): void {
    this.#runningCount--;
    this.#size = this.#runningCount;
    this.#triedAgainAt = now + Math.min(LONGEST_PAUSE_MS, Math.max(afterMs ?? 0, this.#pauseMs));
    // While others run it is no more than the end of the room.
    if (this.#runningCount === 0) this.#pauseMs = Math.min(LONGEST_PAUSE_MS, this.#pauseMs * 2);
  }

  check(): void {
    if (this.#runningCount < 0 || this.#runningCount > this.#most) throw new Error('a count of lines under way that cannot be');
    if (this.#size < 0 || this.#size > this.#most) throw new Error('a window that cannot be');
  }
}
