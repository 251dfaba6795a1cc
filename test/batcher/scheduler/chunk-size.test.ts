import { expect, test } from 'vitest';
import { chunkSize } from '../../../batcher/scheduler/chunk-size.ts';

test('chunks add up, are never too large and never one token', () => {
  for (let prompt = 2; prompt < 60; prompt += 1) {
    for (let allowed = 3; allowed < 20; allowed += 1) {
      let remaining = prompt;
      while (remaining > 0) {
        const size = chunkSize(remaining, allowed);
        expect(size).toBeGreaterThan(1);
        expect(size).toBeLessThanOrEqual(allowed);
        remaining -= size;
      }
      expect(remaining).toBe(0);
    }
  }
});

test('waits when only a single token would fit or be left', () => {
  expect(chunkSize(5, 1)).toBe(0);
  expect(chunkSize(3, 2)).toBe(0);
  expect(chunkSize(5, 0)).toBe(0);
});

test('a prompt of one token has no choice', () => {
  expect(chunkSize(1, 8)).toBe(1);
});
