/**
 * Quarantine: requests that were there at nearly as many deaths as convict one. They run one at a time, until each has recorded a
 * token or a vector: the one that kills is then alone with its deed, and those that only stood beside it get through.
 *
 *   enter ── wait for the turn ── `tried` is recorded ── start ── it gets further, or it leaves
 *
 * That its turn came is recorded before it starts, since nobody can tell it afterwards.
 */
import type { TokenEvent } from '../shared/token-event.ts';
import { isFruit } from './death-record.ts';

/** A job that a batcher holds. */
export interface Suspect {
  /** Records that it is about to run apart from other suspects. */
  tried(): void;
}

interface Waiting<Job> {
  job: Job;
  start(): void;
}

export class Quarantine<Job extends Suspect> {
  readonly #publish: () => void;
  readonly #waiting: Waiting<Job>[] = [];
  #current: Waiting<Job> | undefined;

  /** `publish` sends what jobs have to tell. */
  constructor(publish: () => void) {
    this.#publish = publish;
  }

  enter(job: Job, start: () => void): void {
    this.#waiting.push({ job, start });
    this.#next();
  }

  /** These events of a job are recorded. */
  recorded(job: Job, events: readonly TokenEvent[]): void {
    if (this.#current?.job !== job) return;
    if (events.some(event => event.type === 'tried')) this.#current.start();
    if (events.some(isFruit)) this.#turnOver();
  }

  /** It is over, or another's. */
  left(job: Job): void {
    const index = this.#waiting.findIndex(suspect => suspect.job === job);
    if (index >= 0) this.#waiting.splice(index, 1);
    if (this.#current?.job === job) this.#turnOver();
  }

  #turnOver(): void {
    this.#current = undefined;
    this.#next();
  }

  #next(): void {
    if (this.#current !== undefined) return;
    this.#current = this.#waiting.shift();
    if (this.#current === undefined) return;
    this.#current.job.tried();
    this.#publish();
  }
}
