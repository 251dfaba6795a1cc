/** Random operations: scheduler, KV cache and fake engine together keep every promise, whatever happens in whatever order. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { RequestRefused } from '../../../batcher/scheduler/sequence-request.ts';
import { argmax, reference } from '../fake-engine.ts';
import { random } from '../random.ts';
import { type Choose, SchedulerHarness } from './scheduler-harness.ts';

const OPERATIONS = 2_500;
const RUNS = 8;
const VOCABULARY = 2;

/** Ends one in twelve times, by the logits, so that the end is part of what must be reproduced. */
const choose: Choose = (logits, { tracked }) => ({
  tokenId: (argmax(logits) + tracked.choice) % VOCABULARY,
  finished: Math.floor(logits[0]! * 4096) % 12 === 0,
});

const scenario = fc.record({
  seed: fc.integer(),
  rowCount: fc.constantFrom(1, 2, 3, 6),
  budgetBlocks: fc.constantFrom(12, 30, 60, 200),
  chunkTokens: fc.constantFrom(4, 7, 16),
  scoringChunkTokens: fc.constantFrom(4, 6, 64),
  maxChunksPerStep: fc.constantFrom(1, 1, 3),
  fillerCostTokens: fc.constantFrom(0, 256),
  agedShare: fc.constantFrom(1, 4),
  spareShare: fc.constantFrom(0, 0.03, 0.3, 1),
});

test('nothing is lost, leaked, read wrong or ended twice', { timeout: 300_000 }, async () => {
  const seen = {
    preempted: 0,
    hits: 0,
    forks: 0,
    verified: 0,
    exhausted: 0,
    copies: 0,
    fillers: 0,
    reproduced: 0,
    cancelled: 0,
    scored: 0,
    resumed: 0,
    steps: 0,
  };
  await fc.assert(
    fc.asyncProperty(scenario, async ({ seed, rowCount, budgetBlocks, ...knobs }) => {
      const pick = random(seed);
      const harness = new SchedulerHarness(
        {
          settings: { maxRunning: rowCount, maxBatchedTokens: 64, maxWaiting: 40, ageingMs: 50, fairnessBoundTokens: 100, ...knobs },
          engine: { shape: { rowCount, blockTokens: 4, contextTokens: 64, vocabSize: VOCABULARY }, kernels: 'apart' },
          budgetBlocks,
          storeBlocks: pick(4) === 0 ? Math.ceil(budgetBlocks / 3) : budgetBlocks,
        },
        choose,
      );
      harness.kv.approvePublicPrefix([0, 1, 0, 1, 0, 1, 0, 1]);
      const { scheduler } = harness;
      harness.onPlan = plan => {
        seen.preempted += plan.preempted.length;
        seen.hits += plan.loads.length;
        seen.forks += plan.chunks.filter(chunk => chunk.choiceIds.length > 1 && chunk.sample).length;
        seen.verified += plan.chunks.filter(chunk => chunk.purpose === 'verify').length;
        seen.scored += plan.chunks.filter(chunk => chunk.purpose === 'prefill' && chunk.logitCount > 1).length;
        seen.exhausted += plan.exhausted.length;
        seen.copies += plan.copies.length;
        seen.fillers += harness.fillersOf(plan);
      };
      harness.inFlight = () => {
        if (pick(6) === 0) add();
        if (pick(8) === 0) end();
      };
      let nextId = 0;
      const recent: number[][] = [];

      function prompt(): number[] {
        const before = recent[pick(Math.max(1, recent.length))];
        const shared =
          before !== undefined && pick(3) > 0 ? before.slice(0, pick(before.length + 1)) : pick(4) === 0 ? [0, 1, 0, 1, 0, 1, 0, 1] : [];
        const own = Array.from({ length: pick(pick(4) === 0 ? 40 : 10) }, () => pick(VOCABULARY));
        const whole = [...shared, ...own].slice(0, 62);
        return whole.length === 0 ? [pick(VOCABULARY)] : whole;
      }

      function add(): void {
        const id = `r${nextId}`;
        nextId += 1;
        const promptTokenIds = prompt();
        recent.push(promptTokenIds);
        if (recent.length > 8) recent.shift();
        const choiceIds = Array.from({ length: pick(4) === 0 ? 1 + pick(4) : 1 }, (_, i) => `${id}.${i}`);
        const maxNewTokens = 1 + pick(30);
        const generated = Array.from({ length: pick(maxNewTokens) }, () => pick(VOCABULARY));
        try {
          const added = harness.add({
            id,
            tenant: `t${pick(3)}`,
            weight: 1 + pick(3),
            serviceClass: (['priority', 'default', 'flex'] as const)[pick(3)]!,
            promptTokenIds,
            maxNewTokens,
            choiceIds,
            reproducible: pick(2) === 0,
            speculation: pick(5) === 0,
            scoresPrompt: pick(6) === 0,
            ttftDeadlineAt: pick(3) === 0 ? harness.now + pick(200) : undefined,
            ...(pick(6) === 0 && choiceIds.length === 1 && { resume: { generatedTokenIds: generated } }),
            ...(pick(6) === 0 &&
              choiceIds.length > 1 && { resumeChoices: choiceIds.map((_, i) => generated.slice(0, Math.max(0, generated.length - i))) }),
          });
          if (added.resume !== undefined || added.resumeChoices !== undefined) seen.resumed += 1;
        } catch (error) {
          if (!(error instanceof RequestRefused)) throw error;
          expect(['waiting_full', 'kv_budget_exceeded', 'context_exceeded', 'nothing_to_generate']).toContain(error.reason);
        }
      }

      function end(): void {
        const alive = harness.alive();
        const id = alive[pick(Math.max(1, alive.length))];
        if (id === undefined) return;
        seen.cancelled += 1;
        if (pick(2) === 0) harness.cancel(harness.get(id).request.id);
        else harness.finish(id);
      }

      function draft(): void {
        for (const id of harness.alive())
          scheduler.proposeDrafts(
            id,
            Array.from({ length: 1 + pick(6) }, () => pick(VOCABULARY)),
          );
      }

      for (let operation = 0; operation < OPERATIONS; operation += 1) {
        harness.now += pick(4);
        const kind = pick(20);
        if (kind < 5) add();
        else if (kind === 5) end();
        else if (kind < 8) draft();
        else if (kind === 8) {
          const tokens = pick(20);
          const shrink = pick(3);
          scheduler.setChunkTokens(tokens, shrink === 0 ? undefined : start => tokens - (shrink * start) / 8);
        } else await harness.step();
        harness.check();
      }
      harness.inFlight = undefined;
      await harness.drain();
      harness.checkAtRest();
      seen.steps += harness.steps;

      for (const [id, tracked] of harness.tracked) {
        const { request } = tracked;
        if (!request.reproducible || request.speculation === true || request.resume !== undefined || request.resumeChoices !== undefined)
          continue;
        const generated = harness.generated(id);
        let isOver = false;
        const expected = reference(
          request.promptTokenIds,
          (logits, position) => {
            const at = position - request.promptTokenIds.length;
            if (at >= generated.length) {
              isOver = true;
              return undefined;
            }
            const chosen = choose(logits, { position, tracked });
            expect(chosen.finished).toBe(tracked.end === 'finished' && at === generated.length - 1);
            return chosen.tokenId;
          },
          { kernels: 'apart', vocabSize: VOCABULARY },
        );
        expect(isOver).toBe(true);
        expect(generated).toEqual(expected);
        seen.reproduced += 1;
      }
    }),
    { numRuns: RUNS, seed: 20_240_607 },
  );
  // A test that never came upon these would prove nothing.
  for (const [name, count] of Object.entries(seen)) expect(count, name).toBeGreaterThan(name === 'exhausted' ? 0 : 20);
});
