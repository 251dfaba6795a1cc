/** TokenSource: token ids that look like any, the same in every run (xorshift, so that a figure does not depend on the draw). */

export function tokenSource(vocabSize: number, seed = 0x2545f491): () => number {
  let state = seed;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % vocabSize;
  };
}

/** Numbers in [0, 1), the same in every run with that seed. */
export function randomSource(seed?: number): () => number {
  const next = tokenSource(1 << 24, seed);
  return () => next() / (1 << 24);
}
