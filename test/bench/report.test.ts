import { expect, test } from 'vitest';
import { type Bar, barText, failedBars, type Report, reportJson, reportText } from '../../bench/report.ts';

const bar = (value: number, relation: Bar['relation'], limit: number): Bar => ({ name: 'figure', value, relation, limit });

function report(bars: Bar[]): Report {
  return {
    bench: 'x',
    measuredAt: '2026-01-01T00:00:00.000Z',
    host: { cpuModel: 'CPU', cpuFlags: ['avx2'], coreCount: 2, memoryBytes: 2 ** 34, platform: 'linux', loadAverage: 0.1 },
    settings: { threads: 2 },
    title: 'Title',
    versions: { engine: '1' },
    tables: [
      {
        title: 'Table',
        columns: ['name', 'value'],
        rows: [
          ['a', '1.0'],
          ['long name', '10.0'],
        ],
      },
    ],
    figures: { a: 1 },
    bars,
  };
}

test.each([
  [bar(1, '>=', 1), true],
  [bar(0.99, '>=', 1), false],
  [bar(1, '<=', 1), true],
  [bar(1, '<', 1), false],
  [bar(0, '=', 0), true],
  [bar(1, '=', 0), false],
  [bar(Number.NaN, '>=', 0), false],
  [bar(Number.NaN, '<', 1), false],
])('%j holds: %s', (one, isHolding) => {
  expect(failedBars(report([one]))).toEqual(isHolding ? [] : [one]);
});

test('the text names CPU, flags, versions, settings, and aligns numbers to the right', () => {
  const text = reportText(report([bar(0.5, '>=', 1)]));
  for (const part of [
    'CPU, 2 cores, avx2',
    'engine 1',
    'threads 2',
    '  a            1.0',
    '  long name   10.0',
    'FAILS  figure: 0.5000, wanted >= 1',
  ]) {
    expect(text).toContain(part);
  }
});

test('the JSON is one object with the verdicts', () => {
  const json = JSON.parse(reportJson(report([bar(2, '>=', 1)])));
  expect(json).toMatchObject({ bench: 'x', figures: { a: 1 }, bars: [{ value: 2, limit: 1, holds: true }] });
  expect(barText(json.bars[0])).toBe('figure: 2, wanted >= 1');
});
