import { describe, expect, test } from 'vitest';
import { findKnee, fleetFor } from '../../planner/knee.ts';
import type { Trial, TrialFigures } from '../../planner/simulation.ts';

/** Each batcher of a fleet sustains so much, a little more in a larger fleet, and beyond that less and less comes as promised. */
const sustains = (batcherCount: number) => 3 * (1 + 0.2 * (1 - 1 / batcherCount));
const run = async ({ rate, batcherCount }: Trial): Promise<TrialFigures> =>
  ({ rate, batcherCount, attainment: Math.min(1, (0.9 * sustains(batcherCount) * batcherCount) / rate) }) as TrialFigures;
const parts = { run, target: 0.9 };

describe('the knee', () => {
  test.each([1, 8])('of %i is found within a few hundredths from below', async batcherCount => {
    const { best, tried } = await findKnee(parts, { mostPerBatcher: 5, batcherCount });
    const exact = sustains(batcherCount) * batcherCount;
    expect(best!.rate).toBeLessThanOrEqual(exact);
    expect(best!.rate).toBeGreaterThan(exact * 0.98);
    expect(tried.map(trial => trial.rate)).toEqual(tried.map(trial => trial.rate).toSorted((a, b) => a - b));
    expect(tried.find(trial => trial.rate > best!.rate)!.attainment).toBeLessThan(0.9);
  });

  test('is none where even the lowest rate breaks the promise, and the highest that was tried where none does', async () => {
    const never = { ...parts, run: async (trial: Trial) => ({ ...(await run(trial)), attainment: 0.5 }) };
    expect((await findKnee(never, { mostPerBatcher: 5, batcherCount: 1 })).best).toBeUndefined();
    const always = { ...parts, run: async (trial: Trial) => ({ ...(await run(trial)), attainment: 1 }) };
    expect((await findKnee(always, { mostPerBatcher: 5, batcherCount: 1 })).best!.rate).toBeGreaterThan(5);
  });
});

describe('a fleet for a load', () => {
  test.each([0.5, 3, 10, 47, 180])('of %d requests a second is the smallest that keeps the promise', async rate => {
    const { batcherCount, trial } = await fleetFor(parts, { rate, knee: 2.95, mostPerBatcher: 5 });
    expect(sustains(batcherCount) * batcherCount).toBeGreaterThanOrEqual(rate);
    expect(batcherCount === 1 || sustains(batcherCount - 1) * (batcherCount - 1) < rate).toBe(true);
    expect(trial).toMatchObject({ rate, batcherCount });
  });

  test('that is large goes by what a large fleet gets out of each', async () => {
    const { batcherCount, trial } = await fleetFor(parts, { rate: 3_000, knee: 2.95, mostPerBatcher: 5 });
    expect(batcherCount).toBeGreaterThanOrEqual(3_000 / sustains(64));
    expect(batcherCount).toBeLessThan((3_000 / sustains(64)) * 1.03);
    expect(trial).toMatchObject({ rate: 3_000, batcherCount });
  });
});
