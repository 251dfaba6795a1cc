/**
 * Quarantine: requests that were there at nearly as many deaths as convict one. They run one at a time, until each has recorded a
 * token: the one that kills is then alone with its deed, and those that only stood beside it get through.
 *
 *   enter ── wait for the turn ── `tried` is recorded ── start ── a token is recorded, or it leaves
 *
 * That its turn came is recorded before it starts, since nobody can tell it afterwards.
 */
import type { TokenEvent } from '../shared/token-event.ts';
import type { Generation } from './generation.ts';

interface Suspect {
  generation: Generation;
  start(): void;
}

export class Quarantine {
  readonly #publish: () => void;
  readonly #waiting: Suspect[] = [];
  #current: Suspect | undefined;

  /** `publish` sends what generations have to tell. */
  constructor(publish: () => void) {
    this.#publish = publish;
  }

  enter(generation: Generation, start: () => void): void {
    this.#waiting.push({ generation, start });
    this.#next();
  }

  /** These events of a generation are recorded. */
  recorded(generation: Generation, events: readonly TokenEvent[]): void {
    if (this.#current?.generation !== generation) return;
    if (events.some(event => event.type === 'tried')) this.#current.start();
    if (events.some(event => event.type === 'delta' && event.tokenIds.length > 0)) this.#turnOver();
  }

  /** It is over, or another's. */
  left(generation: Generation): void {
    const index = this.#waiting.findIndex(suspect => suspect.generation === generation);
    if (index >= 0) this.#waiting.splice(index, 1);
    if (this.#current?.generation === generation) this.#turnOver();
  }

  #turnOver(): void {
    this.#current = undefined;
    this.#next();
  }

  #next(): void {
    if (this.#current !== undefined) return;
    this.#current = this.#waiting.shift();
    if (this.#current === undefined) return;
    this.#current.generation.tried();
    this.#publish();
  }
}
