/** What the page shows of a request that waits, and of how fast text comes. */
import { expect, test } from 'vitest';
import { describeFleetLoad, fleetLoad } from '../../../gateway/playground/fleet-load.ts';
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

const batcher = {
  ...{ object: 'batcher' as const, id: 'b', model: 'm', state: 'serving' as const, context_tokens: 100, started_at: 0, seen_at: 0 },
  ...{ running_count: 3, waiting_count: 1, max_running_count: 32, kv_capacity_tokens: 1_000, kv_used_tokens: 250 },
  ...{ prefill_tokens_per_second: 0, decode_tokens_per_second: 0, prompt_tokens_per_second_now: 0 },
  ...{ generated_tokens_per_second_now: 60, request_tokens_per_second_now: 20 },
};

test('batchers together: counts add up, the rate of one answer is their mean, those that are silent do not count', () => {
  const idle = { ...batcher, running_count: 0, waiting_count: 0, generated_tokens_per_second_now: 0, request_tokens_per_second_now: 0 };
  const load = fleetLoad(
    [batcher, { ...idle, running_count: 1, request_tokens_per_second_now: 40 }, { ...batcher, state: 'stale' }],
    [null, 0.61],
  );
  expect(describeFleetLoad(load)).toBe(
    'All clients: 4 of 64 rows in use, 1 waiting in batchers, KV cache 25 % full, 60.0 tokens/s together, 25.0 each, 61 % of the knee',
  );
});

test('without batchers and without a knee nothing is divided by nothing', () => {
  expect(describeFleetLoad(fleetLoad([], [null]))).toBe(
    'All clients: 0 of 0 rows in use, 0 waiting in batchers, KV cache 0 % full, 0.0 tokens/s together, 0.0 each',
  );
});
