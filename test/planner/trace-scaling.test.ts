import { expect, test } from 'vitest';
import { planOf } from '../../bench/preemption.ts';
import type { TracedRequest } from '../../planner/trace.ts';
import { fittingFactor, idealPrefixShare, sampleEvenly, scaleTrace } from '../../planner/trace-scaling.ts';

const request = (promptTokens: number, completionTokens = 1): TracedRequest => ({ atMs: 0, promptTokens, completionTokens });
const rows = (count: number) => Array.from({ length: count }, (_, index) => request(index + 1));
const trace = (requests: TracedRequest[], blockTokens?: number) => ({ requests, blockTokens });

test('a sample is taken evenly from the whole trace, and repeats a short one', () => {
  expect(sampleEvenly(rows(10), 5).map(row => row.promptTokens)).toEqual([1, 3, 5, 7, 9]);
  expect(sampleEvenly(rows(2), 5).map(row => row.promptTokens)).toEqual([1, 2, 1, 2, 1]);
  expect(sampleEvenly(rows(3), 3)).toEqual(rows(3));
});

test('with the fitting factor the longest request fits the context, and nobody is left without a token', () => {
  const lengths = trace([request(1900, 100), request(10)]);
  const factor = fittingFactor(lengths, 1000);
  expect(factor).toBe(0.5);
  expect(scaleTrace(lengths, { factor }).requests).toEqual([request(950, 50), request(5)]);
  expect(scaleTrace(lengths, { factor: 0.05, leastPromptTokens: 48 }).requests).toEqual([request(95, 5), request(48)]);
  // A context that is longer than needed does not stretch them.
  expect(fittingFactor(lengths, 9000)).toBe(1);
});

test('blocks shrink to whole tokens and prompts with them, so that shared prefixes stay shared', () => {
  const scaled = scaleTrace(trace([{ ...request(1024, 100), blockIds: [1, 2] }], 512), { factor: 0.1 });
  expect(scaled).toEqual({ requests: [{ ...request(102, 10), blockIds: [1, 2] }], blockTokens: 51, factor: 51 / 512 });
});

test('the ideal share counts what stood at the front of an earlier prompt', () => {
  const withIds = (promptTokens: number, blockIds: number[]) => ({ ...request(promptTokens), blockIds });
  const requests = [withIds(20, [1, 2]), withIds(25, [1, 2, 3]), withIds(15, [1, 2]), withIds(30, [9, 1, 2])];
  // 0, then two blocks, then as much as the prompt has, then nothing: its first block is new.
  expect(idealPrefixShare(trace(requests, 10))).toEqual({ promptTokens: 90, sharedTokens: 35 });
  expect(idealPrefixShare(trace(rows(2)))).toEqual({ promptTokens: 3, sharedTokens: 0 });
});

test('the KV memory of the preemption bench is short of all rows and holds the longest request', () => {
  const settings = { requests: 4, scale: 100, rows: 32, 'kv-percent': 25 };
  const even = Array.from({ length: 4 }, () => request(90, 10));
  expect(planOf(settings, { trace: trace(even), contextTokens: 8192 }).kvTokens).toBe(800);
  const uneven = trace([...even.slice(1), request(2000, 48)]);
  expect(planOf({ ...settings, 'kv-percent': 1 }, { trace: uneven, contextTokens: 8192 }).kvTokens).toBe(2080);
});
