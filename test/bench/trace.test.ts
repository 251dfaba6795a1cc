import { expect, test } from 'vitest';
import { planOf } from '../../bench/preemption.ts';
import { parseTrace, readTrace, sampleTrace, scaleTrace } from '../../bench/trace.ts';

const TRACE = 'TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,109\r\n';

test('a trace is its two columns, wherever they stand', () => {
  expect(parseTrace(TRACE)).toEqual([
    { promptTokens: 374, completionTokens: 44 },
    { promptTokens: 396, completionTokens: 109 },
  ]);
  expect(parseTrace('GeneratedTokens,x,ContextTokens\n7,?,9')).toEqual([{ promptTokens: 9, completionTokens: 7 }]);
});

test.each([
  ['another header', 'a,b\n1,2', 'no column ContextTokens'],
  ['a row without a number', `${TRACE}2023,x,1`, 'row 3'],
  ['a cut row', `${TRACE}2023,5`, 'row 3'],
  ['no rows', 'ContextTokens,GeneratedTokens\n', 'no rows'],
  ['nothing', '', 'no column'],
])('%s is refused', (_, text, message) => {
  expect(() => parseTrace(text)).toThrow(message);
});

test('a trace that is not there is one clear line', async () => {
  const error = await readTrace('/nowhere/trace.csv').then(
    () => undefined,
    thrown => thrown as Error,
  );
  expect(error?.name).toBe('UsageError');
  expect(error?.message).toContain('/nowhere/trace.csv');
  expect(error?.message).not.toContain('\n');
});

const rows = (count: number) => Array.from({ length: count }, (_, index) => ({ promptTokens: index + 1, completionTokens: 1 }));

test('a sample is taken evenly from the whole trace, and repeats a short one', () => {
  expect(sampleTrace(rows(10), 5).map(row => row.promptTokens)).toEqual([1, 3, 5, 7, 9]);
  expect(sampleTrace(rows(2), 5).map(row => row.promptTokens)).toEqual([1, 2, 1, 2, 1]);
  expect(sampleTrace(rows(3), 3)).toEqual(rows(3));
});

test('at 100 percent the longest request fits the context, and nobody is left without a token', () => {
  const trace = [
    { promptTokens: 1900, completionTokens: 100 },
    { promptTokens: 10, completionTokens: 1 },
  ];
  const { requests, factor } = scaleTrace(trace, { contextTokens: 1000, percent: 100 });
  expect(factor).toBe(0.5);
  expect(requests).toEqual([
    { promptTokens: 950, completionTokens: 50 },
    { promptTokens: 5, completionTokens: 1 },
  ]);
  expect(scaleTrace(trace, { contextTokens: 1000, percent: 10 }).requests[0]).toEqual({ promptTokens: 95, completionTokens: 5 });
  // A context that is longer than needed does not stretch them.
  expect(scaleTrace(trace, { contextTokens: 9000, percent: 100 }).factor).toBe(1);
});

test('the KV memory is short of all rows and holds the longest request', () => {
  const settings = { requests: 4, scale: 100, rows: 32, 'kv-percent': 25 };
  const even = Array.from({ length: 4 }, () => ({ promptTokens: 90, completionTokens: 10 }));
  expect(planOf(settings, { trace: even, contextTokens: 8192 }).kvTokens).toBe(800);
  const uneven = [...even.slice(1), { promptTokens: 2000, completionTokens: 48 }];
  expect(planOf({ ...settings, 'kv-percent': 1 }, { trace: uneven, contextTokens: 8192 }).kvTokens).toBe(2080);
});
