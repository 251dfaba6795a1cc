import fc from 'fast-check';
import { expect, test } from 'vitest';
import { goodputFigures, type ServedRequest } from '../../planner/goodput.ts';
import { LatencyHistogram } from '../../planner/latency-histogram.ts';

const request = (values: Partial<ServedRequest>): ServedRequest => ({
  ...{ arrivedAt: 0, promptTokens: 10, cachedTokens: 4, completionTokens: 11, outcome: 'whole' },
  ...{ firstTokenAt: 100, lastTokenAt: 1_100 },
  ...values,
});

test('goodput is what kept both objectives; the rest is told apart', () => {
  const requests = [
    request({}),
    request({ firstTokenAt: 501, lastTokenAt: 1_000 }),
    request({ lastTokenAt: 1_101 }),
    request({ completionTokens: 1, firstTokenAt: 500, lastTokenAt: 500 }),
    request({ outcome: 'refused', firstTokenAt: undefined, lastTokenAt: undefined }),
    request({ outcome: 'unfinished', lastTokenAt: undefined }),
    request({ outcome: 'broken', lastTokenAt: undefined }),
  ];
  const figures = goodputFigures({ requests, gaps: new LatencyHistogram(), windowMs: 1_000 }, { ttftMs: 500, tpotMs: 100 });
  expect(figures).toMatchObject({
    ...{ requestCount: 7, wholeCount: 4, refusedCount: 1, unfinishedCount: 1, brokenCount: 1 },
    ...{ offeredRequestsPerSecond: 7, goodputRequestsPerSecond: 2, goodputAggregateTokensPerSecond: 12 },
    ...{ attainment: 2 / 7, rejectionRate: 1 / 7, promptTokens: 40, cachedTokens: 16, interTokenMs: undefined },
  });
  // Until the last token, not until the last arrival.
  expect(figures.aggregateTokensPerSecond).toBeCloseTo(34_000 / 1_101);
  expect(figures.ttftMs!.p50).toBe(300);
});

test('nothing served has no latencies, and no request at all breaks no promise', () => {
  const gaps = new LatencyHistogram();
  const none = goodputFigures({ requests: [], gaps, windowMs: 1_000 }, { ttftMs: 1, tpotMs: 1 });
  expect(none).toMatchObject({ attainment: 1, ttftMs: undefined, e2eMs: undefined, aggregateTokensPerSecond: 0 });
});

test('percentiles of the histogram are within a percent of the sorted list', () => {
  fc.assert(
    fc.property(
      fc.array(fc.double({ min: 0.02, max: 1e6, noNaN: true }), { minLength: 1, maxLength: 200 }),
      fc.integer({ min: 1, max: 100 }),
      (values, rank) => {
        const histogram = new LatencyHistogram();
        for (const value of values) histogram.observe(value);
        const sorted = values.toSorted((a, b) => a - b);
        const exact = sorted[Math.max(0, Math.ceil((sorted.length * rank) / 100) - 1)]!;
        expect(histogram.percentile(rank)! / exact).toBeGreaterThan(0.99);
        expect(histogram.percentile(rank)! / exact).toBeLessThan(1.01);
      },
    ),
  );
  expect(new LatencyHistogram().percentile(50)).toBeUndefined();
});
