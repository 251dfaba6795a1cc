import { expect, test } from 'vitest';
import { fitPast, measureEngine } from '../../planner/curve-measurement.ts';
import { ServiceCurves } from '../../planner/service-curves.ts';
import { FakeEngine } from '../batcher/fake-engine.ts';
import { CURVES } from './curves.ts';

test('every batch and chunk that a batcher may ask for lies between measured ones, and nothing unwritten is read', async () => {
  const engine = new FakeEngine({ shape: { rowCount: 5, contextTokens: 1_024 } });
  const measured = await measureEngine(engine, { maxRunning: 5, maxBatchedTokens: 200, progress: () => undefined });
  expect(measured.decode.map(one => one.rows)).toEqual([1, 2, 3, 4, 5]);
  expect(measured.prefill.map(one => one.tokens)).toEqual([16, 32, 64, 128, 200]);
  // What comes out is what a file may hold.
  expect(ServiceCurves.parse({ ...CURVES, ...measured })).toMatchObject(measured);
});

test('a context hardly longer than a chunk has no past to measure', async () => {
  const engine = new FakeEngine({ shape: { rowCount: 2, contextTokens: 128 } });
  const measured = await measureEngine(engine, { maxRunning: 2, maxBatchedTokens: 512, progress: () => undefined });
  expect(measured.prefill.at(-1)!.tokens).toBe(128);
  expect(measured.prefillPast).toEqual({ msPerPastToken: 0, msPerPair: 0 });
});

test('the past is told apart into what each of its tokens costs and what each pair costs, neither below zero', () => {
  const chunks = (...extra: [number, number][]) => extra.map(([tokens, extraMs]) => ({ tokens, extraMs }));
  const both = fitPast(chunks([32, 1_000 * (0.02 + 32 * 0.001)], [128, 1_000 * (0.02 + 128 * 0.001)]), 1_000);
  expect(both.msPerPastToken).toBeCloseTo(0.02);
  expect(both.msPerPair).toBeCloseTo(0.001);
  expect(fitPast(chunks([32, 50], [128, 20]), 1_000)).toEqual({ msPerPastToken: 0.035, msPerPair: 0 });
  expect(fitPast(chunks([32, 1], [128, 200]), 1_000).msPerPastToken).toBe(0);
  expect(fitPast(chunks([32, -5], [128, -9]), 1_000)).toEqual({ msPerPastToken: 0, msPerPair: 0 });
  expect(fitPast(chunks([32, 64]), 1_000)).toEqual({ msPerPastToken: 0, msPerPair: 0.002 });
  expect(fitPast([], 1_000)).toEqual({ msPerPastToken: 0, msPerPair: 0 });
});
