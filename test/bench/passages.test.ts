import { expect, test } from 'vitest';
import { passage, readText } from '../../bench/passages.ts';

test('a passage has its words and depends only on its index', async () => {
  const text = await readText();
  expect(passage(text, 3, 70)).toBe(passage(text, 3, 70));
  expect(passage(text, 3, 70).split(' ')).toHaveLength(76);
});

test('no two passages begin alike, so none finds the prefix of another', async () => {
  const text = await readText();
  const beginnings = Array.from({ length: 200 }, (_, index) => passage(text, index, 10).slice(0, 4));
  expect(new Set(beginnings).size).toBe(200);
});

test('a passage longer than the text goes round', () => {
  expect(passage('one two', 0, 5)).toBe('1. Go on with this story. one two one two one');
});
