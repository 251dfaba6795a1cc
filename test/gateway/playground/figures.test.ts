/** What the page shows of a request that waits, and of how fast text comes. */
import { expect, test } from 'vitest';
import { describeQueueNote, parseQueueNote } from '../../../gateway/playground/queue-note.ts';
import { RateMeter } from '../../../gateway/playground/rate-meter.ts';

test.each([
  ['queued', 'Waiting in the queue'],
  ['queued position=3 eta_ms=1200', 'Waiting in the queue · position 3 · first token in about 1.2 s'],
  [' queued position=1 eta_ms=80 later=1', 'Waiting in the queue · position 1 · first token in about 80 ms'],
  ['queued position=9 eta_ms=600000', 'Waiting in the queue · position 9 · first token in about 10 min'],
  ['queued position=<b> eta_ms=', 'Waiting in the queue'],
  ['working', 'Taken by a batcher: reading the prompt'],
])('%s', (comment, text) => {
  expect(describeQueueNote(parseQueueNote(comment)!)).toBe(text);
});

test('other comments say nothing', () => {
  expect(parseQueueNote('keep-alive')).toBeUndefined();
});

test('a steady stream has its rate from the second token on, and none when it has stopped', () => {
  const meter = new RateMeter();
  expect(meter.rate(0)).toBeUndefined();
  for (let now = 10_000; now <= 20_000; now += 100) {
    meter.add(1, now);
    const rate = meter.rate(now);
    if (now >= 10_300) expect(rate).toBeCloseTo(10, 0);
  }
  expect(meter.rate(21_000)).toBeLessThan(10);
  expect(meter.rate(30_000)).toBeUndefined();
});

test('the first token, which has waited for the prompt, does not count', () => {
  const meter = new RateMeter();
  meter.add(500, 0);
  meter.add(1, 500);
  expect(meter.rate(1_000)).toBe(1);
});
