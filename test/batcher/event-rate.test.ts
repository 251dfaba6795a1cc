import { expect, test } from 'vitest';
import { EventRate } from '../../batcher/event-rate.ts';

test('a steady rate is told from the start on, followed when it changes, and forgotten', () => {
  let now = 1_000;
  const rate = new EventRate(() => now);
  expect(rate.perSecond).toBe(0);
  const run = (seconds: number, everyMs: number) => {
    for (const end = now + seconds * 1000; now < end; now += everyMs) rate.happened();
  };
  run(20, 500);
  expect(rate.perSecond).toBeCloseTo(2, 1);
  run(600, 500);
  expect(rate.perSecond).toBeCloseTo(2, 1);
  run(60, 100);
  // What is a window old counts 1/e.
  expect(rate.perSecond).toBeCloseTo(10 - 8 / Math.E, 0);
  now += 600_000;
  expect(rate.perSecond).toBeLessThan(0.001);
});

test('one event in the first moment is no flood', () => {
  const rate = new EventRate(() => 5);
  rate.happened();
  expect(rate.perSecond).toBeLessThan(0.12);
});
