import { expect, test } from 'vitest';
import { gapsAround } from '../../bench/interference.ts';

test('a gap belongs to the prefill when any of it lies within', () => {
  const times = [0, 10, 20, 120, 220, 230, 240];
  expect(gapsAround(times, { from: 25, to: 215 })).toEqual({ during: [100, 100], plain: [10, 10, 10, 10] });
  // The prompt comes just as a token does: what follows is beside it, what came before is not.
  expect(gapsAround(times, { from: 20, to: 220 })).toEqual({ during: [100, 100], plain: [10, 10, 10, 10] });
  expect(gapsAround(times, { from: 19, to: 221 })).toEqual({ during: [10, 100, 100, 10], plain: [10, 10] });
});

test('a span within one gap is that gap', () => {
  expect(gapsAround([0, 100, 110], { from: 40, to: 60 })).toEqual({ during: [100], plain: [10] });
});
