/** Dice: the random choices of one fuzz input; the same seed throws the same, so that any input can be made again. */
import fc, { type Arbitrary } from 'fast-check';

export class Dice {
  #state: number;

  constructor(seed: number) {
    // Neighbouring seeds must not give neighbouring inputs; and xorshift never leaves 0.
    this.#state = Math.imul(seed ^ 0x9e3779b9, 0x85ebca6b) || 1;
    for (let i = 0; i < 8; i++) this.#next();
  }

  /** From 0 to below `limit`. */
  below(limit: number): number {
    return this.#next() % limit;
  }

  between(least: number, most: number): number {
    return least + this.below(most - least + 1);
  }

  chance(share: number): boolean {
    return this.#next() < share * 2 ** 32;
  }

  pick<T>(from: readonly T[]): T {
    return from[this.below(from.length)]!;
  }

  bytes(count: number): Buffer {
    return Buffer.from(Array.from({ length: count }, () => this.below(256)));
  }

  /** What fast-check makes of it. */
  value<T>(arbitrary: Arbitrary<T>): T {
    return fc.sample(arbitrary, { seed: this.#next() | 0, numRuns: 1 })[0]!;
  }

  /** From 0 to 2 ** 32 - 1. */
  #next(): number {
    this.#state ^= this.#state << 13;
    this.#state ^= this.#state >>> 17;
    this.#state ^= this.#state << 5;
    return this.#state >>> 0;
  }
}
