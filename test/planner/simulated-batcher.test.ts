import { expect, test } from 'vitest';
import { openScheduler } from '../../batcher/batcher-scheduler.ts';
import { sizeChunks } from '../../batcher/chunk-policy.ts';
import { StepRates } from '../../batcher/step-rates.ts';
import { simulateFleet } from '../../planner/fleet.ts';
import type { ServedRequest } from '../../planner/goodput.ts';
import { LatencyHistogram } from '../../planner/latency-histogram.ts';
import { randomSource } from '../../planner/random-source.ts';
import { DEFAULT_SIMULATED, type SimulatedRequest, type SimulatedSettings } from '../../planner/simulated-batcher.ts';
import { SimulatedEngine } from '../../planner/simulated-engine.ts';
import { DEFAULT_ADMISSION } from '../../shared/admission.ts';
import { CURVES } from './curves.ts';

const SETTINGS: SimulatedSettings = { ...DEFAULT_SIMULATED, maxRunning: 6, contextTokens: 2_048, kvTokens: 40_000, hasPrefixStore: true };

function requestsOf(seed: number, count: number): SimulatedRequest[] {
  const random = randomSource(seed);
  let at = 0;
  return Array.from({ length: count }, (_, index) => {
    at += random() * 2_000;
    const promptTokens = 20 + Math.floor(random() * 300);
    // Some begin like one before.
    const family = Math.floor(random() * 5);
    return {
      id: `r${index}`,
      arrivedAt: at,
      promptTokenIds: Array.from({ length: promptTokens }, (_, place) => (place < 64 ? 1_000 + family : 100_000 + index)),
      completionTokens: 1 + Math.floor(random() * 60),
    };
  });
}

function served(
  requests: readonly SimulatedRequest[],
  settings: SimulatedSettings,
): { byPrompt: Map<string, ServedRequest>; gaps: LatencyHistogram } {
  const gaps = new LatencyHistogram();
  const byPrompt = new Map<string, ServedRequest>();
  simulateFleet({
    ...{ curves: CURVES, settings, batcherCount: 1, requests, windowMs: 1e9, gaps },
    admission: { ...DEFAULT_ADMISSION, maxWaitMs: Number.POSITIVE_INFINITY },
    onServed: one => byPrompt.set(String(one.arrivedAt), one),
  });
  return { byPrompt, gaps };
}

/** The loop of a batcher, step after step, none taken together; everything else as the fleet has it: the queue, its delays. */
function reference(requests: readonly SimulatedRequest[], settings: SimulatedSettings) {
  const engine = new SimulatedEngine(CURVES, settings.maxRunning);
  let now = 0;
  const { scheduler } = openScheduler({
    ...{ maxRunning: settings.maxRunning, maxBatchedTokens: settings.maxBatchedTokens, contextTokens: settings.contextTokens },
    ...{ budgetBlocks: Math.floor(settings.kvTokens / 16), clock: () => now },
  });
  const rates = new StepRates();
  const times = new Map<string, { first: number | undefined; last: number; cached: number; tokens: number }>();
  const queued = requests.map(request => ({ request, at: request.arrivedAt + CURVES.path.arrivalMs }));
  /** When the batcher, being free to take, takes the next: it takes one at a time. */
  let takesAt = 0;
  let isTaking = true;
  let onTheWay: { request: SimulatedRequest; at: number } | undefined;
  const take = (until: number) => {
    for (;;) {
      if (onTheWay !== undefined) {
        if (onTheWay.at > until) return;
        const { request, at } = onTheWay;
        now = Math.max(now, at);
        scheduler.add({
          ...{ id: request.id, tenant: 't', serviceClass: 'default', promptTokenIds: request.promptTokenIds, reproducible: false },
          ...{ maxNewTokens: request.completionTokens, arrivedAt: request.arrivedAt, choiceIds: [request.id] },
        });
        times.set(request.id, { first: undefined, last: 0, cached: 0, tokens: 0 });
        onTheWay = undefined;
        takesAt = at;
        isTaking = scheduler.waitingCount < settings.prefetch;
      }
      const next = queued[0];
      if (!isTaking || next === undefined || Math.max(next.at, takesAt) > until) return;
      onTheWay = { request: next.request, at: Math.max(next.at, takesAt) + CURVES.path.fetchMs };
      queued.shift();
    }
  };
  for (;;) {
    const startedAt = now;
    take(startedAt);
    now = startedAt;
    sizeChunks({ rates, scheduler, itlSloMs: settings.itlSloMs });
    const plan = scheduler.plan();
    if (plan === undefined) {
      if (onTheWay === undefined && queued.length === 0) return times;
      if (onTheWay === undefined) take(Math.max(queued[0]!.at, takesAt));
      now = onTheWay!.at;
      continue;
    }
    let tokens = 0;
    for (const copy of [...plan.saves, ...plan.loads]) tokens += copy.blockIds.length * 16;
    for (const copy of plan.copies) tokens += copy.tokens;
    let at = startedAt + engine.copyMs(tokens);
    const outcomes: { sequenceId: string; tokenIds: number[]; finished: boolean }[] = [];
    const token = (sequenceId: string, when: number) => {
      const time = times.get(sequenceId)!;
      time.first ??= when;
      time.last = when;
      time.tokens += 1;
      outcomes.push({ sequenceId, tokenIds: [-1 - Number(sequenceId.slice(1))], finished: false });
    };
    for (const one of plan.admitted) if (!one.resumed) times.get(one.sequenceId)!.cached = one.cachedTokens;
    for (const chunk of plan.chunks) {
      const ms = engine.prefillMs(chunk.start, chunk.tokenIds.length);
      at += ms;
      rates.prefilled({ start: chunk.start, tokens: chunk.tokenIds.length }, ms);
      if (chunk.sample) token(chunk.sequenceId, at);
    }
    const context = plan.decode.reduce((sum, entry) => sum + entry.position, 0);
    const ms = plan.decode.length === 0 ? 0 : engine.decodeMs(plan.decode.length, context);
    at += ms;
    if (plan.decode.length > 0) rates.decoded(plan.decode.length, ms);
    for (const entry of plan.decode) if (entry.sample) token(entry.sequenceId, at);
    take(at);
    now = at;
    scheduler.commit(plan, outcomes);
    rates.stepped(ms);
    // Room is looked at when a step is over.
    if (!isTaking && onTheWay === undefined && scheduler.waitingCount < settings.prefetch) {
      isTaking = true;
      takesAt = at;
    }
  }
}

test.each([
  ['with room', SETTINGS, 1],
  ['with room, another load', SETTINGS, 2],
  ['with little KV memory', { ...SETTINGS, kvTokens: 900 }, 3],
  ['without a prefix store', { ...SETTINGS, hasPrefixStore: false }, 4],
] as const)('every request has the times that a step-by-step loop gives it: %s', (_, settings, seed) => {
  const requests = requestsOf(seed, 120);
  const { byPrompt, gaps } = served(requests, settings);
  if (!settings.hasPrefixStore) {
    expect([...byPrompt.values()].every(one => one.cachedTokens === 0)).toBe(true);
    return;
  }
  const expected = reference(requests, settings);
  let gapCount = 0;
  for (const request of requests) {
    const one = byPrompt.get(String(request.arrivedAt))!;
    const { first, last, cached, tokens } = expected.get(request.id)!;
    expect(one.outcome).toBe('whole');
    expect(one.firstTokenAt).toBeCloseTo(first! + CURVES.path.deliveryMs, 3);
    expect(one.lastTokenAt).toBeCloseTo(last + CURVES.path.deliveryMs, 3);
    expect(one.cachedTokens).toBe(cached);
    expect(tokens).toBe(request.completionTokens);
    gapCount += tokens - 1;
  }
  expect(gaps.count).toBe(gapCount);
});
