import { describe, expect, test } from 'vitest';
import { fitRequests, type RequestCost, type RequestFit } from '../../bench/request-cost.ts';
import { type ClosedLoop, simulateClosedLoop } from '../../planner/closed-loop.ts';
import type { PathCosts } from '../../planner/service-curves.ts';
import { DEFAULT_SIMULATED, type SimulatedSettings } from '../../planner/simulated-batcher.ts';
import { CURVES } from './curves.ts';

const SETTINGS: SimulatedSettings = { ...DEFAULT_SIMULATED, maxRunning: 8, contextTokens: 2_048, kvTokens: 40_000, hasPrefixStore: true };

function loop(clientCount: number, promptTokens: number, path: Partial<PathCosts> = {}): ClosedLoop {
  return {
    curves: { ...CURVES, path: { ...CURVES.path, ...path } },
    ...{ settings: SETTINGS, clientCount },
    requests: Array.from({ length: 24 }, (_, index) => ({
      ...{ id: `r${index}`, arrivedAt: 0, completionTokens: 12 },
      promptTokenIds: new Array<number>(promptTokens).fill(index),
    })),
  };
}

describe('clients that ask again when they are answered', () => {
  test('one has its requests one after the other', () => {
    const all = simulateClosedLoop(loop(1, 64)).ms;
    const one = simulateClosedLoop({ ...loop(1, 64), requests: loop(1, 64).requests.slice(0, 1) }).ms;
    expect(all).toBeCloseTo(24 * one, 3);
  });

  test('several share the steps', () => {
    const [alone, together] = [simulateClosedLoop(loop(1, 64)).ms, simulateClosedLoop(loop(6, 64)).ms];
    expect(together).toBeLessThan(alone);
    expect(together).toBeGreaterThan(alone / 6);
  });

  test('what a request costs once is added once', () => {
    const [without, costly] = [simulateClosedLoop(loop(1, 64)).ms, simulateClosedLoop(loop(1, 64, { requestMs: 7 })).ms];
    expect(costly - without).toBeCloseTo(24 * 7, 3);
  });
});

describe('what is missing in a simulation', () => {
  const simulate = (cost: RequestCost) => ({ short: simulateClosedLoop(loop(6, 20, cost)), long: simulateClosedLoop(loop(6, 180, cost)) });
  const fitted = (real: RequestFit['real']) => fitRequests({ real, requestCount: 24, simulate });

  test.each([
    { requestMs: 0, prefillShare: 1 },
    { requestMs: 25, prefillShare: 1 },
    { requestMs: 0, prefillShare: 1.3 },
    { requestMs: 20, prefillShare: 1.2 },
  ])('is told by request and by prefill: $requestMs ms, $prefillShare', real => {
    const { short, long } = simulate(real);
    const found = simulate(fitted({ shortMs: short.ms, longMs: long.ms }));
    expect(Math.abs(found.short.ms / short.ms - 1)).toBeLessThan(0.02);
    expect(Math.abs(found.long.ms / long.ms - 1)).toBeLessThan(0.02);
  });

  test('no request costs less than nothing', () => {
    const { short, long } = simulate({ requestMs: 0, prefillShare: 1 });
    const found = fitted({ shortMs: short.ms * 0.9, longMs: long.ms * 1.05 });
    expect(found.requestMs).toBe(0);
    expect(found.prefillShare).toBeGreaterThan(1);
  });
});
