/** RandomSource: numbers in [0, 1), the same in every run with one seed, on every machine. */

export function randomSource(seed: number): () => number {
  // The mulberry32 generator: 32 bits of state, good enough for arrivals and for picking lengths.
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
