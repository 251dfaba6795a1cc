/** Both ways of batching on an engine that computes nothing. */
import { expect, test } from 'vitest';
import { BATCHING_KINDS, type BatchingKind, serveBatched } from '../../bench/batching-run.ts';
import { FakeEngine } from '../batcher/fake-engine.ts';

const load = {
  maxBatchedTokens: 64,
  itlSloMs: 1_000,
  // The first of each three has by far the longest answer.
  requests: Array.from({ length: 9 }, (_, index) => ({ atMs: 0, promptTokens: 20, completionTokens: index % 3 === 0 ? 40 : 4 })),
};

test.each(BATCHING_KINDS)('%s batching serves each request once, whole', async kind => {
  const { served } = await serveBatched(new FakeEngine({ shape: { rowCount: 3, contextTokens: 256 } }), load, kind);
  expect(served).toHaveLength(9);
  expect(served.map(one => one.completionTokens).toSorted((a, b) => a - b)).toEqual([4, 4, 4, 4, 4, 4, 40, 40, 40]);
  for (const { arrivedAt, firstTokenAt, lastTokenAt } of served) {
    expect(firstTokenAt!).toBeGreaterThanOrEqual(arrivedAt);
    expect(lastTokenAt!).toBeGreaterThanOrEqual(firstTokenAt!);
  }
});

test('a static batch takes nobody in before its longest answer has ended, a continuous one does', async () => {
  const outcomeOf = (kind: 'continuous' | 'static') =>
    serveBatched(new FakeEngine({ shape: { rowCount: 3, contextTokens: 256 } }), load, kind);
  const fixed = await outcomeOf('static');
  // Three batches, each as long as its longest: the first token of every answer comes from the prefill.
  expect(fixed.stepCount).toBe(3 * 39);
  const batches = [0, 3, 6].map(from => fixed.served.slice(from, from + 3));
  for (const [before, after] of [batches.slice(0, 2), batches.slice(1)]) {
    const endedAt = Math.max(...before!.map(one => one.lastTokenAt!));
    for (const one of after!) expect(one.firstTokenAt!).toBeGreaterThanOrEqual(endedAt);
  }
  const continuous = await outcomeOf('continuous');
  expect(continuous.stepCount).toBeLessThan(fixed.stepCount / 2);
  expect(continuous.rowSteps).toBe(fixed.rowSteps);
});

test('a row that has ended is computed in vain only where rows are padded', async () => {
  const rowSteps = async (kind: BatchingKind) =>
    (await serveBatched(new FakeEngine({ shape: { rowCount: 3, contextTokens: 256 } }), load, kind)).rowSteps;
  // In each of three batches one answer of 40 tokens and two of 4, of which the first come from the prefill.
  expect(await rowSteps('static')).toBe(3 * (39 + 3 + 3));
  expect(await rowSteps('padded')).toBe(3 * 3 * 39);
});
