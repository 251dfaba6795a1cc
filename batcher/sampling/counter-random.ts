/**
 * CounterRandom: random numbers that are a pure function of (seed, position, stream), so that a sequence can be taken up anywhere, by anyone.
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC 2011): key = seed, counter = position and stream.
 */

const MULTIPLIER_0 = 0xd2511f53;
const MULTIPLIER_1 = 0xcd9e8d57;
const KEY_STEP_0 = 0x9e3779b9;
const KEY_STEP_1 = 0xbb67ae85;
const ROUNDS = 10;

/** High 32 bits of the product of two unsigned 32-bit integers, signed like every result of a bit operation. */
function multiplyHigh(a: number, b: number): number {
  const aLow = a & 0xffff;
  const aHigh = a >>> 16;
  const bLow = b & 0xffff;
  const bHigh = b >>> 16;
  // Each product is below 2^32 and each sum below 2^34: exact in a double.
  const middle = aHigh * bLow + ((aLow * bLow) >>> 16);
  const cross = aLow * bHigh + (middle % 0x10000);
  return (aHigh * bHigh + Math.floor(middle / 0x10000) + Math.floor(cross / 0x10000)) | 0;
}

/** Encrypts `counter` (four words) in place under `key` (two words). Exported for the generator's published test vectors. */
export function philox(counter: Uint32Array, key: { low: number; high: number }): void {
  let c0 = counter[0]! | 0;
  let c1 = counter[1]! | 0;
  let c2 = counter[2]! | 0;
  let c3 = counter[3]! | 0;
  let k0 = key.low | 0;
  let k1 = key.high | 0;
  for (let round = 0; round < ROUNDS; round++) {
    const high0 = multiplyHigh(MULTIPLIER_0, c0);
    const low0 = Math.imul(MULTIPLIER_0, c0);
    const high1 = multiplyHigh(MULTIPLIER_1, c2);
    const low1 = Math.imul(MULTIPLIER_1, c2);
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 = (k0 + KEY_STEP_0) | 0;
    k1 = (k1 + KEY_STEP_1) | 0;
  }
  counter[0] = c0;
  counter[1] = c1;
  counter[2] = c2;
  counter[3] = c3;
}

export class CounterRandom {
  readonly #key: { low: number; high: number };
  readonly #stream: number;
  readonly #counter = new Uint32Array(4);

  /** `seed` is any safe integer, negative ones included; `stream` tells the choices of one request apart. */
  constructor(seed: number, stream: number) {
    if (!Number.isSafeInteger(seed)) throw new RangeError(`A seed is an integer of at most 53 bits, not ${seed}.`);
    this.#key = { low: seed >>> 0, high: Math.floor(seed / 0x100000000) >>> 0 };
    this.#stream = stream;
  }

  /** Uniform in [0, 1), 53 bits. */
  at(position: number): number {
    const counter = this.#counter;
    counter[0] = position;
    counter[1] = Math.floor(position / 0x100000000);
    counter[2] = this.#stream;
    counter[3] = 0;
    philox(counter, this.#key);
    return ((counter[0]! >>> 5) * 0x4000000 + (counter[1]! >>> 6)) / 0x20000000000000;
  }
}
