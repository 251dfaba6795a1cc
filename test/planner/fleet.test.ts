import { expect, test } from 'vitest';
import { simulateFleet } from '../../planner/fleet.ts';
import type { ServedRequest } from '../../planner/goodput.ts';
import { LatencyHistogram } from '../../planner/latency-histogram.ts';
import { DEFAULT_SIMULATED, type SimulatedRequest, type SimulatedSettings } from '../../planner/simulated-batcher.ts';
import { simulatedLoad } from '../../planner/simulated-load.ts';
import type { TracedRequest } from '../../planner/trace.ts';
import { DEFAULT_ADMISSION } from '../../shared/admission.ts';
import { CURVES } from './curves.ts';

const SETTINGS: SimulatedSettings = { ...DEFAULT_SIMULATED, maxRunning: 4, contextTokens: 2_048, kvTokens: 40_000, hasPrefixStore: true };

function serve(
  traced: readonly TracedRequest[],
  options: { batcherCount?: number; drainMs?: number; blockTokens?: number; templateTokens?: number; maxWaitMs?: number } = {},
) {
  const { batcherCount = 1, drainMs, blockTokens, templateTokens = 0, maxWaitMs = DEFAULT_ADMISSION.maxWaitMs } = options;
  const served: ServedRequest[] = [];
  const record = simulateFleet({
    ...{ curves: CURVES, settings: SETTINGS, batcherCount, windowMs: 1_000, gaps: new LatencyHistogram() },
    admission: { ...DEFAULT_ADMISSION, maxWaitMs },
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

/** Every 100 ms is several times what one batcher can answer, every second is less than that. */
const steadily = (everyMs: number, count: number) => Array.from({ length: count }, (_, index) => request(index * everyMs, 64, 20));
const ttftOf = (one: ServedRequest) => one.firstTokenAt! - one.arrivedAt;

test('a flood is refused at once beyond the wait that is allowed, and what is let in keeps about that', () => {
  const flood = steadily(100, 600);
  const maxWaitMs = 3_000;
  const { served } = serve(flood, { maxWaitMs });
  expect(served).toHaveLength(600);
  const refused = served.filter(one => one.outcome === 'refused');
  const whole = served.filter(one => one.outcome === 'whole');
  expect(refused.length + whole.length).toBe(600);
  expect(refused.length).toBeGreaterThan(200);
  // Nothing is refused before there is a queue, and from then on some of every few are.
  expect(refused[0]!.arrivedAt).toBeGreaterThan(1_000);
  expect(refused[0]!.arrivedAt).toBeLessThan(20_000);
  const longest = Math.max(...whole.map(ttftOf));
  expect(longest).toBeGreaterThan(maxWaitMs);
  expect(longest).toBeLessThan(3 * maxWaitMs);
  // Without a bound the last waits for all the others.
  const unbounded = serve(flood, { maxWaitMs: Number.POSITIVE_INFINITY }).served;
  expect(unbounded.every(one => one.outcome === 'whole')).toBe(true);
  expect(Math.max(...unbounded.map(ttftOf))).toBeGreaterThan(2 * longest);
  // The same again gives the same.
  expect(serve(flood, { maxWaitMs }).served).toEqual(served);
});

test('none is refused while the batcher keeps up, nor where there are batchers enough', () => {
  const outcomes = (...args: Parameters<typeof serve>) => new Set(serve(...args).served.map(one => one.outcome));
  expect(outcomes(steadily(1_000, 200), { maxWaitMs: 3_000 })).toEqual(new Set(['whole']));
  expect(outcomes(steadily(100, 600), { maxWaitMs: 3_000, batcherCount: 8 })).toEqual(new Set(['whole']));
});

test('prompts that a gateway takes for longer than they are make it refuse sooner', () => {
  const flood = simulatedLoad(steadily(100, 600), { blockTokens: undefined, templateTokens: 0 });
  const refusedCount = (requests: Iterable<SimulatedRequest>) => {
    let count = 0;
    simulateFleet({
      ...{ curves: CURVES, settings: SETTINGS, batcherCount: 1, requests, windowMs: 60_000, gaps: new LatencyHistogram() },
      admission: { ...DEFAULT_ADMISSION, maxWaitMs: 3_000 },
      onServed: one => (count += one.outcome === 'refused' ? 1 : 0),
    });
    return count;
  };
  const requests = [...flood];
  const overestimated = requests.map(one => ({ ...one, estimatedPromptTokens: 3 * one.promptTokenIds.length }));
  expect(refusedCount(overestimated)).toBeGreaterThan(refusedCount(requests));
});
