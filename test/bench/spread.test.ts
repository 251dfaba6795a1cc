import { expect, test } from 'vitest';
import { percentile, spreadOf, spreadText } from '../../bench/spread.ts';

test('a spread is minimum, median and maximum, in any order of samples', () => {
  expect(spreadOf([9, 1, 4])).toEqual({ min: 1, median: 4, max: 9, sampleCount: 3 });
  expect(spreadOf([1, 2])).toEqual({ min: 1, median: 1.5, max: 2, sampleCount: 2 });
});

test('percentiles interpolate and reach both ends', () => {
  const samples = Array.from({ length: 101 }, (_, i) => 100 - i);
  expect([0, 50, 99, 100].map(rank => percentile(samples, rank))).toEqual([0, 50, 99, 100]);
  expect(percentile([10, 20], 25)).toBe(12.5);
});

test('no samples is an error, not a figure', () => {
  expect(() => spreadOf([])).toThrow('no samples');
});

test('one repetition shows no range', () => {
  expect(spreadText(spreadOf([2]))).toBe('2.0');
  expect(spreadText(spreadOf([1, 2, 4]))).toBe('2.0 (1.0-4.0)');
});
