/** How the headers of limits say a time. */
import { expect, test } from 'vitest';
import { duration } from '../../gateway/limit-headers.ts';

test.each([
  [0, '0ms'],
  [999.4, '999ms'],
  [1_000, '1s'],
  [1_500, '1.5s'],
  [59_990, '59.99s'],
  [59_999, '1m0s'],
  [60_000, '1m0s'],
  [119_999, '2m0s'],
  [365_000, '6m5s'],
])('%d ms is %s', (ms, text) => {
  expect(duration(ms)).toBe(text);
});
