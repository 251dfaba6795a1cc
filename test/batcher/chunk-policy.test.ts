import { expect, test } from 'vitest';
import { sizeChunks } from '../../batcher/chunk-policy.ts';
import { StepRates } from '../../batcher/step-rates.ts';

/** Sizes of the next chunk from a position, on a host that computes a token of a prompt in a millisecond, or in ten. */
function chunkSizes(msPerToken: number, isDecoding: boolean): (start: number) => number {
  const rates = new StepRates();
  for (let start = 0; start < 4_000; start += 200) {
    const ms = msPerToken * (200 + 0.0005 * 200 * (start + 100));
    rates.prefilled({ start, tokens: 200 }, ms);
  }
  const sizes: ((start: number) => number)[] = [];
  const scheduler = {
    isDecoding,
    setChunkTokens: (_: number, tokensFrom?: (start: number) => number) => void sizes.push(tokensFrom!),
    setPrefillRate: () => undefined,
  };
  sizeChunks({ rates, scheduler, itlSloMs: 150 });
  return sizes[0]!;
}

test('beside a stream a chunk keeps to its bound; alone to about a second; deep in a prompt it is shorter', () => {
  for (const [msPerToken, isDecoding, ms] of [
    [1, true, 120],
    [1, false, 1_000],
    [10, false, 1_000],
  ] as const) {
    const tokensFrom = chunkSizes(msPerToken, isDecoding);
    const tokens = tokensFrom(0);
    expect(tokens).toBeGreaterThan((0.5 * ms) / msPerToken);
    expect(tokens).toBeLessThanOrEqual((1.1 * ms) / msPerToken);
    expect(tokensFrom(4_000)).toBeLessThan(0.6 * tokens);
  }
});

test('before anything was measured nothing is said', () => {
  let calls = 0;
  const scheduler = { isDecoding: false, setChunkTokens: () => void calls++, setPrefillRate: () => void calls++ };
  sizeChunks({ rates: new StepRates(), scheduler, itlSloMs: 150 });
  expect(calls).toBe(0);
});
