import { expect, test } from 'vitest';
import { plotSvg, type Series } from '../../bench/plot.ts';

const line = (name: string, last: number): Series => ({
  name,
  points: [
    [1, 10],
    [32, last],
  ],
});

function labelHeights(svg: string, names: readonly string[]): number[] {
  return names.map(name => Number(new RegExp(`y="([\\d.]+)"[^>]*>${name}</text>`).exec(svg)![1]));
}

test('lines that end close together have names that can be read', () => {
  const names = ['ours', 'theirs', 'another'];
  const heights = labelHeights(
    plotSvg({ title: 't', x: 'batch', y: 'tokens/s', series: [line('ours', 900), line('theirs', 250), line('another', 251)] }),
    names,
  );
  const sorted = heights.toSorted((a, b) => a - b);
  expect(sorted[0]).toBe(heights[0]);
  for (let i = 1; i < sorted.length; i++) expect(sorted[i]! - sorted[i - 1]!).toBeGreaterThanOrEqual(13);
});

test('what is in a name is text', () => {
  expect(plotSvg({ title: '<script>', x: 'a & b', y: 'y', series: [line('n', 2)] })).toContain('&lt;script&gt;');
  expect(() => plotSvg({ title: 't', x: 'x', y: 'y', series: [] })).toThrow('no points');
});
