/** LengthGroups: every text in one group, and no cheaper groups than these. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { lengthGroups } from '../../../batcher/encoder/length-groups.ts';

const cost = (groups: readonly (readonly number[])[]) =>
  groups.reduce((sum, group) => sum + group.length * group[0]! * (64 + group[0]!), 0);

/** All ways to cut a descending list into so many runs at most. */
function cuts(lengths: readonly number[], most: number): number[][][] {
  if (lengths.length === 0) return [[]];
  if (most === 1) return [[[...lengths]]];
  return lengths.flatMap((_, index) => cuts(lengths.slice(index + 1), most - 1).map(rest => [lengths.slice(0, index + 1), ...rest]));
}

test('of one, of like ones, of very different ones', () => {
  expect(lengthGroups([7], 4)).toEqual([[0]]);
  expect(lengthGroups([7, 7, 7], 4)).toEqual([[0, 1, 2]]);
  expect(lengthGroups([3, 200, 3, 3], 4)).toEqual([[1], [0, 2, 3]]);
  expect(lengthGroups([5, 9], 1)).toEqual([[1, 0]]);
});

test('none cheaper, each text once, the longest first', () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 1, max: 300 }), { minLength: 1, maxLength: 9 }),
      fc.integer({ min: 1, max: 4 }),
      (lengths, most) => {
        const groups = lengthGroups(lengths, most);
        expect(groups.length).toBeLessThanOrEqual(most);
        expect(groups.every(group => group.length > 0)).toBe(true);
        expect(groups.flat().sort((a, b) => a - b)).toEqual([...lengths.keys()]);
        const found = groups.map(group => group.map(index => lengths[index]!));
        for (const group of found) expect(Math.max(...group)).toBe(group[0]);
        const best = Math.min(
          ...cuts(
            lengths.toSorted((a, b) => b - a),
            most,
          ).map(cost),
        );
        expect(cost(found)).toBe(best);
      },
    ),
  );
});
