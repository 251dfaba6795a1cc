import { expect, test } from 'vitest';
import { rowOf } from '../../bench/step-cost.ts';

test('overhead is the median of the steps’ own differences, so that a slow spell of the machine is in both', () => {
  const row = rowOf({ batch: 8, sampling: 'mixed' }, { step: [51, 101, 53], engine: [50, 100, 50], outside: [0.5, 1.01, 0.53] });
  expect(row).toMatchObject({ batch: 8, sampling: 'mixed', stepMs: 53, engineMs: 50 });
  expect(row.overhead.p50).toBeCloseTo(1);
  expect(row.outside.p50).toBeCloseTo(0.53);
  expect(row.outsideShare).toBeCloseTo(0.01);
});
