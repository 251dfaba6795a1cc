import fc from 'fast-check';
import { expect, test } from 'vitest';
import { GoodputTally, type ServedRequest } from '../../planner/goodput.ts';
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
  const figures = tallyOf(requests).figures(1_000);
  expect(figures).toMatchObject({
    ...{ requestCount: 7, counts: { whole: 4, refused: 1, broken: 1, unfinished: 1, unsent: 0 } },
    ...{ offeredRequestsPerSecond: 7, goodputRequestsPerSecond: 2, goodputAggregateTokensPerSecond: 12 },
    ...{ attainment: 2 / 7, rejectionRate: 1 / 7, promptTokens: 40, cachedTokens: 16, interTokenMs: undefined },
  });
  // Until the last token, not until the last arrival.
  expect(figures.aggregateTokensPerSecond).toBeCloseTo(34_000 / 1_101);
});

test('parts that were counted apart add up to the whole', () => {
  const requests = Array.from({ length: 40 }, (_, index) => request({ arrivedAt: index, outcome: index % 9 === 0 ? 'refused' : 'whole' }));
  const whole = tallyOf(requests);
  const sum = tallyOf(requests.slice(0, 15));
  sum.merge(structuredClone(tallyOf(requests.slice(15)).data()));
  expect(sum.figures(500)).toEqual(whole.figures(500));
});

test('nothing served has no latencies, and no request at all breaks no promise', () => {
  const none = tallyOf([]).figures(1_000);
  expect(none).toMatchObject({ attainment: 1, ttftMs: undefined, e2eMs: undefined, aggregateTokensPerSecond: 0 });
});

function tallyOf(requests: readonly ServedRequest[]): GoodputTally {
  const tally = new GoodputTally({ ttftMs: 500, tpotMs: 100 });
  for (const each of requests) tally.add(each);
  return tally;
}

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
