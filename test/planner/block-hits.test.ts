import { expect, test } from 'vitest';
import { idealBlockHits } from '../../planner/block-hits.ts';

test('whole blocks from the front count, wherever they were seen before', () => {
  const prompts = [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6], [1, 2, 9, 9, 3, 4], [3, 4, 1, 2], [1, 2, 9, 9, 3, 4], [1]];
  expect(idealBlockHits(prompts, 2)).toEqual([0, 4, 2, 0, 6, 0]);
});
