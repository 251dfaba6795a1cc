import { expect, test } from 'vitest';
import { arrivals } from '../../planner/arrivals.ts';
import type { Trace } from '../../planner/trace.ts';

const trace: Trace = {
  requests: Array.from({ length: 100 }, (_, index) => ({ atMs: index * index, promptTokens: index + 1, completionTokens: 1 })),
  blockTokens: undefined,
};
const plan = { kind: 'poisson', rate: 4, count: 20_000, seed: 1 } as const;

test('poisson arrivals have the rate, a spread that is its mean, and the same times for the same seed', () => {
  const planned = arrivals(trace, plan);
  const gaps = planned.map(({ atMs }, index) => atMs - (planned[index - 1]?.atMs ?? 0));
  const mean = gaps.reduce((sum, gap) => sum + gap, 0) / gaps.length;
  const deviation = Math.sqrt(gaps.reduce((sum, gap) => sum + (gap - mean) ** 2, 0) / gaps.length);
  expect(mean).toBeGreaterThan(245);
  expect(mean).toBeLessThan(255);
  expect(deviation / mean).toBeGreaterThan(0.97);
  expect(deviation / mean).toBeLessThan(1.03);
  expect(arrivals(trace, plan)).toEqual(planned);
  expect(arrivals(trace, { ...plan, seed: 2 })).not.toEqual(planned);
});

test('poisson arrivals have the lengths of the whole trace, in no order', () => {
  const lengths = arrivals(trace, { ...plan, count: 50 }).map(({ promptTokens }) => promptTokens);
  expect(lengths.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 50 }, (_, index) => 2 * index + 1));
  expect(lengths).not.toEqual(lengths.toSorted((a, b) => a - b));
});

test('requests that share prefixes stay in their order', () => {
  const shared: Trace = { requests: trace.requests.map((request, index) => ({ ...request, blockIds: [index] })), blockTokens: 8 };
  expect(arrivals(shared, { ...plan, count: 30 }).map(({ blockIds }) => blockIds![0])).toEqual(
    Array.from({ length: 30 }, (_, index) => index),
  );
});

test("trace arrivals keep the trace's bursts at the wanted rate, and go round", () => {
  const some = arrivals(trace, { ...plan, kind: 'trace', count: 50 });
  expect(some.at(-1)!.atMs).toBeCloseTo(12_500);
  expect(some[25]!.atMs / some[49]!.atMs).toBeCloseTo((25 * 25) / (49 * 49));
  const many = arrivals(trace, { ...plan, kind: 'trace', count: 200 });
  const times = many.map(({ atMs }) => atMs);
  expect(times).toEqual(times.toSorted((a, b) => a - b));
  expect(times.at(-1)!).toBeGreaterThan(49_000);
  expect(times.at(-1)!).toBeLessThanOrEqual(50_000);
  const still: Trace = { requests: [{ atMs: 0, promptTokens: 1, completionTokens: 1 }], blockTokens: undefined };
  expect(() => arrivals(still, { ...plan, kind: 'trace' })).toThrow('no times');
});
