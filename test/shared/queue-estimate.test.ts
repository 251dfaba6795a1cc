/** QueueEstimate: what it says of waits that can be worked out by hand, and that it says nothing before it can know. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ModelLoad } from '../../shared/model-load.ts';
import { QueueEstimate } from '../../shared/queue-estimate.ts';

const load: ModelLoad = {
  ...{ runningCount: 4, maxRunningCount: 4, waitingCount: 0, waitingTokens: 0 },
  ...{ prefillTokensPerSecond: 1_000, decodeTokensPerSecond: 100 },
};
const measured = () => {
  const estimate = new QueueEstimate();
  estimate.accepted('m', 50, 200);
  estimate.finished('m', { promptTokens: 100, completionTokens: 20, cachedTokens: 0 });
  return estimate;
};
const first = { model: 'm', position: 1, promptTokensBound: 400 };

describe('the wait', () => {
  test('with a free row: its own prompt, a quarter of its bound as the last one was', () => {
    expect(measured().waitMs(first, { ...load, runningCount: 3 })).toBe(100);
  });

  test('without one: until an answer has ended too', () => {
    expect(measured().waitMs(first, load)).toBe(100 + 200);
  });

  test('behind others: their prompts and their answers', () => {
    expect(measured().waitMs({ ...first, position: 3 }, load)).toBe(100 + 2 * 100 + 3 * 200);
  });

  test('behind those that batchers have taken: what they say of them', () => {
    expect(measured().waitMs(first, { ...load, waitingCount: 2, waitingTokens: 1_000 })).toBe(100 + 1_000 + 3 * 200);
    expect(measured().waitMs(first, { ...load, waitingCount: 2, waitingTokens: undefined })).toBe(100 + 2 * 100 + 3 * 200);
  });

  test('is finite, not negative, and no shorter further behind', () => {
    const count = fc.nat(10_000);
    fc.assert(
      fc.property(count, count, count, count, fc.integer({ min: 1, max: 5_000 }), (running, rows, waiting, bound, position) => {
        const busy = { ...load, runningCount: running, maxRunningCount: rows, waitingCount: waiting, waitingTokens: undefined };
        const wait = measured().waitMs({ model: 'm', position, promptTokensBound: bound }, busy)!;
        const next = measured().waitMs({ model: 'm', position: position + 1, promptTokensBound: bound }, busy)!;
        expect(wait).toBeGreaterThanOrEqual(0);
        expect(next).toBeGreaterThanOrEqual(wait);
        expect(Number.isFinite(next)).toBe(true);
      }),
    );
  });
});

test('nothing is said of what has not been measured', () => {
  expect(new QueueEstimate().waitMs(first, load)).toBeUndefined();
  expect(measured().waitMs({ ...first, model: 'other' }, load)).toBeUndefined();
  expect(measured().waitMs(first, { ...load, prefillTokensPerSecond: 0 })).toBeUndefined();
  expect(measured().waitMs(first, { ...load, decodeTokensPerSecond: 0 })).toBeUndefined();
  const unended = new QueueEstimate();
  unended.accepted('m', 50, 200);
  expect(unended.waitMs(first, load)).toBeUndefined();
  expect(unended.waitMs(first, { ...load, runningCount: 0 })).toBe(100);
});

test('models that come and go take no more room than a bound', () => {
  const estimate = measured();
  for (let index = 0; index < 1_000; index++) estimate.accepted(`m${index}`, 1, 1);
  expect(estimate.waitMs(first, load)).toBeUndefined();
  expect(estimate.waitMs({ ...first, model: 'm999' }, { ...load, runningCount: 0 })).toBeDefined();
});
