/** Throughput: tokens of the time since it was last asked, and of one answer. */
import { expect, test } from 'vitest';
import { Throughput } from '../../batcher/throughput.ts';

test('what was done since it was last asked', () => {
  const throughput = new Throughput(0);
  throughput.prefilled(300);
  for (const sinceLastMs of [undefined, 50, 150]) throughput.generated(sinceLastMs);
  expect(throughput.read(1_000)).toEqual({ promptTokensPerSecondNow: 300, generatedTokensPerSecondNow: 3, requestTokensPerSecondNow: 10 });
  // Too soon for a rate.
  throughput.generated(10);
  expect(throughput.read(1_100).generatedTokensPerSecondNow).toBe(3);
  expect(throughput.read(2_000)).toEqual({ promptTokensPerSecondNow: 0, generatedTokensPerSecondNow: 1, requestTokensPerSecondNow: 100 });
  expect(throughput.read(3_000)).toEqual({ promptTokensPerSecondNow: 0, generatedTokensPerSecondNow: 0, requestTokensPerSecondNow: 0 });
});
