import { expect, test } from 'vitest';
import { DEFAULT_SIMULATED } from '../../planner/simulated-batcher.ts';
import type { Scenario } from '../../planner/simulation.ts';
import { parseTrace } from '../../planner/trace.ts';
import { TrialRunner } from '../../planner/trial-runner.ts';
import { DEFAULT_ADMISSION } from '../../shared/admission.ts';
import { CURVES } from './curves.ts';

const scenario: Scenario = {
  curves: CURVES,
  settings: { ...DEFAULT_SIMULATED, contextTokens: 2_048, kvTokens: 40_000, hasPrefixStore: false },
  admission: DEFAULT_ADMISSION,
  trace: parseTrace(
    ['ContextTokens,GeneratedTokens', ...Array.from({ length: 50 }, (_, index) => `${40 + 5 * index},${1 + index}`)].join('\n'),
  ),
  arrivals: 'poisson',
  objectives: { ttftMs: 2_000, tpotMs: 100 },
  requestCount: 300,
  seed: 1,
};

test('the same trial gives the same figures, beside another one and alone; more load gives less of the promised', async () => {
  await using runner = new TrialRunner(scenario, 2);
  const [low, high, again] = await Promise.all([0.2, 3, 0.2].map(rate => runner.run({ rate, batcherCount: 1 })));
  expect(again).toEqual(low);
  expect(low!.requestCount).toBeGreaterThan(250);
  expect(low!.requestCount).toBeLessThan(290);
  expect(low!.attainment).toBeGreaterThan(high!.attainment);
  expect(low!.busyShare).toBeLessThan(high!.busyShare);
  expect(high!.meanBatch).toBeGreaterThan(low!.meanBatch);
});

test('a large fleet in parts amounts to the whole one', async () => {
  await using runner = new TrialRunner(scenario, 3);
  await using alone = new TrialRunner(scenario, 1);
  const trial = { rate: 200, batcherCount: 350 };
  const [parts, whole] = await Promise.all([runner.run(trial, 4_000), alone.run(trial, 4_000)]);
  expect(parts.requestCount).toBeGreaterThan(3_500);
  for (const figure of ['attainment', 'goodputRequestsPerSecond', 'aggregateTokensPerSecond', 'busyShare', 'meanBatch'] as const) {
    expect(parts[figure] / whole[figure]).toBeGreaterThan(0.95);
    expect(parts[figure] / whole[figure]).toBeLessThan(1.05);
  }
});

test('a trial that cannot run says why', async () => {
  await using runner = new TrialRunner({ ...scenario, arrivals: 'trace' }, 1);
  await expect(runner.run({ rate: 1, batcherCount: 1 })).rejects.toThrow('no times');
});
