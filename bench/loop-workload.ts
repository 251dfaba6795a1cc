/**
 * LoopWorkload: a program of its own in which the batcher's loop, with all that belongs to a step (scheduler, sampler, text, events to Redis,
 * metrics), decodes one full batch; it tells where the time of each step went.
 *
 *   REDIS_URL=… node bench/loop-workload.ts '<LoopPlan as JSON>'
 *
 * After each decode run of the loop the engine is given the same run again with nothing beside it. What the loop's step took more than that is its
 * cost, whatever it hid behind the engine's run: a clock around the run alone would not see an engine that is held up by the text of the last step.
 */

import type { DecodeBatch, Engine } from '../batcher/engine/engine.ts';
import { OrtEngine, type OrtEngineOptions } from '../batcher/engine/ort-engine.ts';
import { Generations } from '../batcher/generations.ts';
import { KvCache } from '../batcher/kv/kv-cache.ts';
import { Loop } from '../batcher/loop.ts';
import { Metrics } from '../batcher/metrics.ts';
import { loadChat } from '../batcher/model/chat-template.ts';
import { openPrepared } from '../batcher/model/prepare.ts';
import { openScratch } from '../batcher/open-scratch.ts';
import { Outbox } from '../batcher/outbox.ts';
import { BranchMaker } from '../batcher/prompt-branch.ts';
import { encodePrompt } from '../batcher/prompt-encoder.ts';
import { Publisher } from '../batcher/publisher.ts';
import { connectRedis } from '../batcher/redis.ts';
import { Scheduler } from '../batcher/scheduler/scheduler.ts';
import { schedulerSettings } from '../batcher/scheduler/scheduler-settings.ts';
import { Speculation } from '../batcher/speculation.ts';
import { StepRates } from '../batcher/step-rates.ts';
import { StructuredOutput } from '../batcher/structured/structured-output.ts';
import type { Job, Sampling, Structure, Tool } from '../shared/job.ts';
import { JOB_VERSION } from '../shared/job.ts';
import { passage, readText } from './passages.ts';

export interface LoopPlan {
  modelDirectory: string;
  engine: OrtEngineOptions;
  /** Sequences, all decoding at once. */
  batch: number;
  promptWords: number;
  sampling: SamplingMix;
  /** That every answer is to have; long enough to go on for all steps. */
  structure?: Structure;
  /** A function that every answer is to call, as long likewise. */
  calledTool?: Tool;
  /** Steps of the whole batch that count. */
  stepCount: number;
}

/** One entry a step that decoded the whole batch and did nothing else, in milliseconds. */
export interface LoopTimes {
  /** From the end of the step before, the second engine run not counted. */
  step: number[];
  /** The same engine run with nothing beside it. */
  engine: number[];
  /** Of the step, outside the calls of the engine, as the batcher's own metric has it: plan, sampling, commit. */
  outside: number[];
}

const WARM_UP_STEPS = 8;
const SMALL_CHUNK_TOKENS = 8;
export type SamplingMix = 'greedy' | 'temperature' | 'mixed';

/** Row by row in turn; the dear kinds are in the mix, as clients ask for them. */
const SAMPLING: Record<SamplingMix, readonly Sampling[]> = {
  greedy: [{ temperature: 0 }],
  temperature: [{ temperature: 1 }],
  mixed: [
    { temperature: 0 },
    { temperature: 0.8, topP: 0.95 },
    { temperature: 0.8, topK: 40 },
    { temperature: 1, topP: 0.9, presencePenalty: 0.5, frequencyPenalty: 0.5 },
  ],
};

/** Gives every decode run twice and keeps the second one's time. */
class TwiceRun implements Engine {
  readonly #engine: Engine;
  aloneMs = 0;

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  get shape() {
    return this.#engine.shape;
  }

  async decode(batch: DecodeBatch): Promise<Float32Array> {
    // What the loop does while an engine runs, it does during the first.
    await this.#engine.decode(batch);
    const startedAt = performance.now();
    const logits = await this.#engine.decode(batch);
    this.aloneMs = performance.now() - startedAt;
    return logits;
  }

  prefill: Engine['prefill'] = chunk => this.#engine.prefill(chunk);
  copyRow: Engine['copyRow'] = copy => this.#engine.copyRow(copy);
  saveBlocks: Engine['saveBlocks'] = copy => this.#engine.saveBlocks(copy);
  loadBlocks: Engine['loadBlocks'] = copy => this.#engine.loadBlocks(copy);
  releaseRow: Engine['releaseRow'] = (row, fromToken) => this.#engine.releaseRow(row, fromToken);
  kvResidentBytes: Engine['kvResidentBytes'] = () => this.#engine.kvResidentBytes();
  releaseBlocks: Engine['releaseBlocks'] = blockIds => this.#engine.releaseBlocks(blockIds);
  close: Engine['close'] = () => this.#engine.close();
}

export async function measureLoop(plan: LoopPlan, redisUrl: string): Promise<LoopTimes> {
  const model = await openPrepared(plan.modelDirectory);
  const { tokenizer, template } = await loadChat(model);
  const { contextTokens } = model.manifest.shape;
  const engine = new TwiceRun(new OrtEngine(plan.engine));
  const { blockTokens, rowCount } = plan.engine;
  const kv = new KvCache({ blockTokens, rowCount, budgetBlocks: plan.engine.storeBlocks, storeBlocks: plan.engine.storeBlocks });
  const clock = () => Date.now();
  const scheduler = new Scheduler({ settings: schedulerSettings({ maxRunning: rowCount }), kv, contextTokens, clock });
  const rates = new StepRates();
  const speculation = new Speculation({ maxRows: 4, maxDrafts: 8, minGain: 1.05 });
  const metrics = new Metrics(model.manifest.name, {
    runningCount: () => scheduler.runningCount,
    waitingCount: () => scheduler.waitingCount,
    preemptionCount: () => scheduler.preemptionCount,
    kvUsage: () => scheduler.kvUsage,
    kvResidentBytes: async () => undefined,
    prefillTokensPerSecond: () => rates.prefillTokensPerSecond,
    decodeTokensPerSecond: () => rates.decodeTokensPerSecond,
  });
  const redis = connectRedis(redisUrl);
  const outbox = new Outbox(redis);
  const failure = Promise.withResolvers<never>();
  const publisher = new Publisher({
    outbox,
    onStanding: (_, standing) => failure.reject(new Error(`a job is ${standing}`)),
    onRecorded: (generation, events) => generations.recorded(generation, events),
    onSettled: generation => generations.settled(generation),
    onError: failure.reject,
  });
  const structuredOutput = new StructuredOutput(tokenizer);
  const generations: Generations = new Generations({
    scheduler,
    outbox,
    publisher,
    encodePrompt: prompt => encodePrompt(prompt, { tokenizer, template }),
    branchMaker: new BranchMaker(tokenizer, {
      scratch: openScratch(model.manifest.shape.vocabSize, model.kernelPath),
      toolSyntax: template.toolSyntax,
    }),
    grammarOf: form => structuredOutput.grammarOf(form),
    toolSyntax: template.toolSyntax,
    contextTokens,
    maxAttempts: 1,
    reproducible: true,
    ttftSloMs: undefined,
    clock,
    wake: () => loop.wake(),
    onSequenceLeft: sequenceId => speculation.ended(sequenceId),
    onEnded: () => {
      if (++endedCount < plan.batch || times.step.length >= plan.stepCount) return;
      failure.reject(new Error(`the answers ended after ${times.step.length} of ${plan.stepCount} whole steps: the machine is too busy`));
    },
    onError: failure.reject,
  });
  const times: LoopTimes = { step: [], engine: [], outside: [] };
  let endedCount = 0;
  let lastEndedAt: number | undefined;
  let wholeSteps = 0;
  const loop: Loop = new Loop({
    engine,
    scheduler,
    publisher,
    rates,
    speculation,
    find: sequenceId => generations.find(sequenceId),
    runFailed: (_, error) => failure.reject(error),
    reproducibleRows: 2,
    itlSloMs: 150,
    onToken: sinceLastMs => metrics.tokenSampled(sinceLastMs),
    onStep(step, stepTimes) {
      metrics.step(step, stepTimes);
      const now = performance.now();
      const isWhole = step.chunks.length === 0 && step.decode.length === plan.batch;
      if (isWhole && ++wholeSteps > WARM_UP_STEPS && lastEndedAt !== undefined) {
        times.step.push(now - lastEndedAt - engine.aloneMs);
        times.engine.push(engine.aloneMs);
        times.outside.push(stepTimes.stepMs - stepTimes.engineMs);
        if (times.step.length === plan.stepCount) loop.stop();
      }
      lastEndedAt = now;
    },
  });
  const running = loop.run();
  const text = await readText();
  for (let index = 0; index < plan.batch; index++) {
    const job = jobOf(index, { plan, content: passage(text, index, plan.promptWords), model: model.manifest.name });
    await generations.submit({ id: job.id, data: job, attempt: 1, deathCount: 0, complete: async () => {}, giveBack: async () => {} });
  }
  await Promise.race([running, failure.promise]);
  await publisher.idle();
  redis.disconnect();
  await structuredOutput.close();
  engine.close();
  return times;
}

/** While others are still in prefill, the first ones decode; beside other work, prefill is cut to small chunks. */
function tokensNeeded(plan: LoopPlan): number {
  const promptTokens = 2 * plan.promptWords + JSON.stringify(plan.calledTool ?? '').length / 3;
  const chunksOfAPrompt = 2 + Math.ceil(promptTokens / SMALL_CHUNK_TOKENS);
  return plan.stepCount + WARM_UP_STEPS + plan.batch * chunksOfAPrompt;
}

function jobOf(index: number, { plan, content, model }: { plan: LoopPlan; content: string; model: string }): Job {
  const kinds = SAMPLING[plan.sampling];
  const tool = plan.calledTool;
  return {
    version: JOB_VERSION,
    id: `step-cost-${process.pid}-${index}`,
    model,
    tenant: 'bench',
    shard: 'bench',
    prompt: { kind: 'chat', messages: [{ role: 'user', content }], ...(tool && { tools: [tool] }) },
    sampling: kinds[index % kinds.length]!,
    stopping: { maxTokens: tokensNeeded(plan), ignoreEos: true },
    ...(plan.structure && { structure: plan.structure }),
    ...(tool && { toolUse: { choice: 'required', isParallel: true, schemaParam: 'bench' } }),
    choiceCount: 1,
    serviceClass: 'default',
    submittedAt: Date.now(),
  };
}

if (import.meta.main) {
  const plan = JSON.parse(process.argv[2] ?? '{}') as LoopPlan;
  process.stdout.write(`${JSON.stringify(await measureLoop(plan, process.env.REDIS_URL ?? ''))}\n`);
}
