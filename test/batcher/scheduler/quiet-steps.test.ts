import fc from 'fast-check';
import { expect, test } from 'vitest';
import { openScheduler } from '../../../batcher/batcher-scheduler.ts';
import type { Scheduler } from '../../../batcher/scheduler/scheduler.ts';

interface Arrival {
  /** Step before which it comes. */
  step: number;
  promptTokens: number;
  maxNewTokens: number;
}

const arrival = fc.record({
  step: fc.integer({ min: 0, max: 60 }),
  promptTokens: fc.integer({ min: 1, max: 90 }),
  maxNewTokens: fc.integer({ min: 1, max: 70 }),
});

/** Everything that a step does but a plain token for everybody, by step. */
function run(arrivals: readonly Arrival[], options: { budgetBlocks: number; isJumping: boolean }): { log: string[]; jumpedSteps: number } {
  let step = 0;
  const { scheduler, kv } = openScheduler({
    ...{ maxRunning: 4, maxBatchedTokens: 64, contextTokens: 256, budgetBlocks: options.budgetBlocks },
    clock: () => step,
  });
  const waiting = arrivals.map((one, id) => ({ ...one, id: `r${id}` })).sort((a, b) => a.step - b.step);
  const log: string[] = [];
  let jumpedSteps = 0;
  for (;;) {
    while (waiting[0] !== undefined && waiting[0].step <= step) add(scheduler, waiting.shift()!);
    const quiet = options.isJumping ? Math.min(scheduler.quietSteps, (waiting[0]?.step ?? Number.POSITIVE_INFINITY) - step) : 0;
    if (quiet > 0) {
      scheduler.takeQuietSteps(quiet, tokenIdOf);
      jumpedSteps += quiet;
      step += quiet;
      scheduler.check();
      continue;
    }
    const plan = scheduler.plan();
    if (plan === undefined) {
      if (waiting[0] === undefined) break;
      step = waiting[0].step;
      continue;
    }
    const sampled = [
      ...plan.chunks.filter(chunk => chunk.sample).map(chunk => chunk.sequenceId),
      ...plan.decode.filter(entry => entry.sample).map(entry => entry.sequenceId),
    ];
    const limited = scheduler.commit(
      plan,
      sampled.map(sequenceId => ({ sequenceId, tokenIds: [tokenIdOf(sequenceId)], finished: false })),
    );
    const chunks = plan.chunks.map(chunk => `${chunk.sequenceId}:${chunk.start}+${chunk.tokenIds.length}`);
    const { preempted, admitted, saves, copies } = plan;
    const cached = admitted.map(one => `${one.sequenceId}/${one.cachedTokens}`);
    if (chunks.length + preempted.length + limited.length + saves.length + copies.length > 0) {
      const positions = plan.decode.map(entry => `${entry.sequenceId}@${entry.position}`);
      log.push(`${step} ${JSON.stringify({ chunks, preempted, cached, limited, positions, saves, copies, usage: kv.usage() })}`);
    }
    step++;
  }
  return { log, jumpedSteps };
}

function add(scheduler: Scheduler, { id, step, promptTokens, maxNewTokens }: Arrival & { id: string }): void {
  scheduler.add({
    ...{ id, tenant: 't', serviceClass: 'default', arrivedAt: step, reproducible: false, choiceIds: [id], maxNewTokens },
    // Half of them begin alike, so that the prefix store matters.
    promptTokenIds: Array.from({ length: promptTokens }, (_, index) => (index < promptTokens / 2 ? index : tokenIdOf(id) + index)),
  });
}

function tokenIdOf(id: string): number {
  return 1_000 * (1 + Number(id.slice(1)));
}

test('taken at once they leave all as one after the other would, with room and without', () => {
  let jumpedSteps = 0;
  fc.assert(
    fc.property(fc.array(arrival, { minLength: 1, maxLength: 12 }), fc.constantFrom(12, 20, 200), (arrivals, budgetBlocks) => {
      const jumping = run(arrivals, { budgetBlocks, isJumping: true });
      expect(jumping.log).toEqual(run(arrivals, { budgetBlocks, isJumping: false }).log);
      jumpedSteps += jumping.jumpedSteps;
    }),
    { numRuns: 150 },
  );
  expect(jumpedSteps).toBeGreaterThan(1_000);
});

test('a step that ends somebody, admits somebody or prefills is not quiet', () => {
  const { scheduler } = openScheduler({ maxRunning: 2, maxBatchedTokens: 64, contextTokens: 256, budgetBlocks: 100, clock: () => 0 });
  expect(scheduler.quietSteps).toBe(0);
  add(scheduler, { id: 'r0', step: 0, promptTokens: 8, maxNewTokens: 5 });
  expect(scheduler.quietSteps).toBe(0);
  step(scheduler);
  // Its prefill is offered to the store first.
  expect(scheduler.quietSteps).toBe(0);
  step(scheduler);
  // Two of five tokens are there, and the last one ends it.
  expect(scheduler.quietSteps).toBe(2);
  expect(() => scheduler.takeQuietSteps(3, tokenIdOf)).toThrow('not quiet');
  add(scheduler, { id: 'r1', step: 0, promptTokens: 8, maxNewTokens: 5 });
  expect(scheduler.quietSteps).toBe(0);
});

function step(scheduler: Scheduler): void {
  const plan = scheduler.plan()!;
  const ids = [...plan.chunks, ...plan.decode].filter(entry => entry.sample).map(entry => entry.sequenceId);
  scheduler.commit(
    plan,
    ids.map(sequenceId => ({ sequenceId, tokenIds: [7], finished: false })),
  );
}
