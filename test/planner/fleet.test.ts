import { expect, test } from 'vitest';
import { simulateFleet } from '../../planner/fleet.ts';
import type { ServedRequest } from '../../planner/goodput.ts';
import { LatencyHistogram } from '../../planner/latency-histogram.ts';
import { DEFAULT_SIMULATED, type SimulatedSettings } from '../../planner/simulated-batcher.ts';
import { simulatedLoad } from '../../planner/simulated-load.ts';
import type { TracedRequest } from '../../planner/trace.ts';
import { CURVES } from './curves.ts';

const SETTINGS: SimulatedSettings = { ...DEFAULT_SIMULATED, maxRunning: 4, contextTokens: 2_048, kvTokens: 40_000, hasPrefixStore: true };

function serve(
  traced: readonly TracedRequest[],
  options: { batcherCount?: number; drainMs?: number; blockTokens?: number; templateTokens?: number } = {},
) {
  const { batcherCount = 1, drainMs, blockTokens, templateTokens = 0 } = options;
  const served: ServedRequest[] = [];
  const record = simulateFleet({
    ...{ curves: CURVES, settings: SETTINGS, batcherCount, windowMs: 1_000, gaps: new LatencyHistogram() },
    ...(drainMs !== undefined && { drainMs }),
    requests: simulatedLoad(traced, { blockTokens, templateTokens }),
    onServed: one => served.push(one),
  });
  return { served: served.toSorted((a, b) => a.arrivedAt - b.arrivedAt), ...record };
}

const request = (atMs: number, promptTokens = 128, completionTokens = 10): TracedRequest => ({ atMs, promptTokens, completionTokens });

test('a request alone takes the way there, its prefill, its steps and the way back', () => {
  const { served, use } = serve([request(100)]);
  const [one] = served;
  // 6 ms to the queue, 2 to the batcher, a chunk of 128 tokens, 3 back.
  expect(one!.firstTokenAt).toBeCloseTo(100 + 6 + 2 + 400 + 3);
  // Nine steps at 18 ms and a thousandth for each token of context; 8 blocks go to the prefix store after the prefill, and copies take time.
  const context = Array.from({ length: 9 }, (_, step) => 128 + step).reduce((sum, tokens) => sum + tokens, 0);
  expect(one!.lastTokenAt! - one!.firstTokenAt!).toBeCloseTo(9 * 18 + context * 0.001 + 1.28);
  expect(use).toMatchObject({ prefillTokens: 128, decodeTokens: 9, stepCount: 10, preemptionCount: 0 });
});

test('a second batcher takes what the first has no row for, late', () => {
  const burst = Array.from({ length: 40 }, (_, index) => request(index));
  const alone = serve(burst);
  const two = serve(burst, { batcherCount: 2 });
  expect(two.served).toHaveLength(40);
  expect(two.endedAt / alone.endedAt).toBeGreaterThan(0.48);
  expect(two.endedAt / alone.endedAt).toBeLessThan(0.6);
  // More than there is work for change nothing.
  const many = serve([request(0), request(0)], { batcherCount: 50 });
  expect(many.served[1]!.firstTokenAt).toBeCloseTo(many.served[0]!.firstTokenAt!);
});

test('whatever is still open at the end is unfinished, what could never run is refused, and each has one outcome', () => {
  const { served } = serve([request(0), request(1, 2_048), request(900, 1_000, 900)], { drainMs: 2_000 });
  expect(served.map(one => one.outcome)).toEqual(['whole', 'refused', 'unfinished']);
});

test('prompts share what their blocks and the template have in common', () => {
  const withIds = (atMs: number, blockIds: number[]) => ({ ...request(atMs, 32 + 64 * blockIds.length), blockIds });
  const { served } = serve([withIds(0, [1, 2]), withIds(5_000, [1, 2]), withIds(10_000, [1, 3]), withIds(15_000, [4])], {
    blockTokens: 64,
    templateTokens: 32,
  });
  // All but the last two tokens, which are computed in any case, in whole blocks of 16; then one block of 64; then the template.
  expect(served.map(one => one.cachedTokens)).toEqual([0, 158, 96, 32]);
});
