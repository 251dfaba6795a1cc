import fc from 'fast-check';
import { expect, test } from 'vitest';
import { PrefixSelection } from '../../../batcher/sampling/prefix-selection.ts';

/** Weights are small integers, so that sums are exact and every tie counts. */
const items = fc.array(
  fc.record({
    key: fc.oneof(
      fc.integer({ min: 0, max: 6 }),
      fc.double({ min: -1e3, max: 1e3, noNaN: true }),
      fc.double({ min: 0, max: 1e-300, noNaN: true }),
    ),
    weight: fc.integer({ min: 1, max: 9 }),
  }),
  { minLength: 1, maxLength: 400 },
);

test('selects the set that a full sort gives', () => {
  fc.assert(
    fc.property(items, fc.double({ min: 0.001, max: 1.2, noNaN: true }), (list, share) => {
      const keys = Float64Array.from(list, item => item.key);
      const weights = Float64Array.from(list, item => item.weight);
      const target = share * weights.reduce((sum, weight) => sum + weight, 0);
      const order = list.map((_, index) => index).sort((a, b) => keys[a]! - keys[b]! || a - b);
      let sum = 0;
      const expected: number[] = [];
      for (const index of order) {
        expected.push(index);
        sum += weights[index]!;
        if (sum >= target) break;
      }
      const selection = new PrefixSelection(new Int32Array(list.length));
      selection.select(keys, weights, list.length, target);
      const isIn = (index: number): boolean =>
        keys[index]! < selection.cutKey || (keys[index] === selection.cutKey && index <= selection.cutIndex);
      expect(order.filter(isIn)).toEqual(expected);
    }),
    { numRuns: 500, seed: 6 },
  );
});

test('a hundred thousand equal keys', () => {
  const count = 100_000;
  const selection = new PrefixSelection(new Int32Array(count));
  selection.select(new Float64Array(count).fill(3), new Float64Array(count).fill(1), count, 70_000);
  expect(selection.cutIndex).toBe(69_999);
});
