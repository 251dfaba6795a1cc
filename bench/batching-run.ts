/**
 * BatchingRun: a program of its own that serves the same requests on one engine several times over: by continuous batching, as the product does, and by
 * static batching. The product's own scheduler and chunk sizes on all sides; only who may come in, and when, differs.
 *
 *   node bench/batching-run.ts '<BatchingTask as JSON>'
 *
 * Static: when the batch has ended, the next one is made of those who wait, as many as there are rows; its prompts are computed whole, since nobody waits
 * for a next token. A row that ends early stays empty until the longest has ended. Padded, as it is where a batch is one tensor, the row is computed
 * in vain until then; otherwise not.
 */
import { openScheduler } from '../batcher/batcher-scheduler.ts';
import { sizeChunks } from '../batcher/chunk-policy.ts';
import type { Engine } from '../batcher/engine/engine.ts';
import { OrtEngine, type OrtEngineOptions } from '../batcher/engine/ort-engine.ts';
import type { Scheduler } from '../batcher/scheduler/scheduler.ts';
import type { StepOutcome, StepPlan } from '../batcher/scheduler/step-plan.ts';
import { prepareMemory } from '../batcher/step-memory.ts';
import { StepRates } from '../batcher/step-rates.ts';
import type { ServedRequest } from '../planner/goodput.ts';
import { tokenSource } from './token-source.ts';

export const BATCHING_KINDS = ['continuous', 'static', 'padded'] as const;
export type BatchingKind = (typeof BATCHING_KINDS)[number];

export interface BatchedRequest {
  atMs: number;
  promptTokens: number;
  completionTokens: number;
}

export interface BatchedLoad {
  maxBatchedTokens: number;
  itlSloMs: number;
  requests: readonly BatchedRequest[];
}

export interface BatchingTask extends BatchedLoad {
  engine: OrtEngineOptions;
  /** In this order. */
  kinds: readonly BatchingKind[];
}

export interface BatchingOutcome {
  kind: BatchingKind;
  /** Times from the start of this run. */
  served: ServedRequest[];
  /** Sum over decode runs of their rows, and of the runs. */
  rowSteps: number;
  stepCount: number;
}

const WARM_UP: readonly BatchedRequest[] = Array.from({ length: 4 }, () => ({ atMs: 0, promptTokens: 64, completionTokens: 12 }));

class BatchingRun {
  readonly #engine: Engine;
  readonly #task: BatchedLoad;
  readonly #kind: BatchingKind;
  readonly #scheduler: Scheduler;
  readonly #rates = new StepRates();
  readonly #nextToken: () => number;
  readonly #startedAt = performance.now();
  readonly #open = new Map<string, ServedRequest & { tokenCount: number }>();
  readonly #outcome: BatchingOutcome;

  constructor(engine: Engine, task: BatchedLoad, kind: BatchingKind) {
    const { rowCount, contextTokens, blockTokens, vocabSize } = engine.shape;
    this.#engine = engine;
    this.#task = task;
    this.#kind = kind;
    this.#nextToken = tokenSource(vocabSize);
    this.#outcome = { kind, served: [], rowSteps: 0, stepCount: 0 };
    this.#scheduler = openScheduler({
      ...{ maxRunning: rowCount, maxBatchedTokens: task.maxBatchedTokens, contextTokens, storeBlocks: 0 },
      budgetBlocks: (rowCount * contextTokens) / blockTokens,
      clock: () => this.#now,
    }).scheduler;
  }

  get #now(): number {
    return performance.now() - this.#startedAt;
  }

  async run(): Promise<BatchingOutcome> {
    const { requests } = this.#task;
    let next = 0;
    while (next < requests.length || this.#open.size > 0) {
      next += this.#submit(requests.slice(next));
      this.#sizeChunks();
      const plan = this.#scheduler.plan();
      if (plan !== undefined) await this.#step(plan);
      else await new Promise(resolve => setTimeout(resolve, Math.max(0, (requests[next]?.atMs ?? 0) - this.#now)));
    }
    return this.#outcome;
  }

  /** A static batch holds nobody up: all its streams wait for its last prompt. */
  #sizeChunks(): void {
    const scheduler = this.#scheduler;
    sizeChunks({
      rates: this.#rates,
      scheduler: {
        isDecoding: this.#kind === 'continuous' && scheduler.isDecoding,
        setChunkTokens: scheduler.setChunkTokens.bind(scheduler),
        setPrefillRate: scheduler.setPrefillRate.bind(scheduler),
      },
      itlSloMs: this.#task.itlSloMs,
    });
  }

  /** Those who have come and may come in; returns how many. */
  #submit(waiting: readonly BatchedRequest[]): number {
    const isStatic = this.#kind !== 'continuous';
    if (isStatic && this.#open.size > 0) return 0;
    const now = this.#now;
    const notYet = waiting.findIndex(request => request.atMs > now);
    const due = waiting.slice(0, notYet < 0 ? waiting.length : notYet);
    const admitted = isStatic ? due.slice(0, this.#engine.shape.rowCount) : due;
    const longest = Math.max(...admitted.map(request => request.completionTokens));
    for (const { atMs, promptTokens, completionTokens } of admitted) {
      const id = `r${this.#open.size}-${this.#outcome.served.length}-${atMs}`;
      this.#scheduler.add({
        ...{ id, tenant: 't', serviceClass: 'default', reproducible: false, choiceIds: [id], arrivedAt: atMs },
        promptTokenIds: Array.from({ length: promptTokens }, this.#nextToken),
        maxNewTokens: this.#kind === 'padded' ? longest : completionTokens,
      });
      this.#open.set(id, {
        ...{ arrivedAt: atMs, promptTokens, cachedTokens: 0, completionTokens, outcome: 'whole' },
        ...{ firstTokenAt: undefined, lastTokenAt: undefined, tokenCount: 0 },
      });
    }
    return admitted.length;
  }

  async #step(plan: StepPlan): Promise<void> {
    const engine = this.#engine;
    for (const copy of prepareMemory(engine, plan)) engine.saveBlocks(copy);
    const outcomes: StepOutcome[] = [];
    for (const chunk of plan.chunks) {
      const startedAt = performance.now();
      await engine.prefill(chunk);
      this.#rates.prefilled({ start: chunk.start, tokens: chunk.tokenIds.length }, performance.now() - startedAt);
      if (chunk.sample) outcomes.push(this.#token(chunk.sequenceId));
    }
    const streamsMs = plan.decode.length === 0 ? 0 : await this.#decode(plan, outcomes);
    this.#rates.stepped(streamsMs);
    for (const id of [...this.#scheduler.commit(plan, outcomes), ...plan.exhausted]) this.#end(id);
  }

  async #decode({ decode }: StepPlan, outcomes: StepOutcome[]): Promise<number> {
    const startedAt = performance.now();
    await this.#engine.decode({ tokenIds: decode.map(entry => entry.tokenId), positions: decode.map(entry => entry.position) });
    const ms = performance.now() - startedAt;
    this.#rates.decoded(decode.length, ms);
    this.#outcome.rowSteps += decode.length;
    this.#outcome.stepCount += 1;
    for (const entry of decode) if (entry.sample) outcomes.push(this.#token(entry.sequenceId));
    return ms;
  }

  #token(sequenceId: string): StepOutcome {
    const request = this.#open.get(sequenceId)!;
    request.tokenCount += 1;
    if (request.tokenCount <= request.completionTokens) request.lastTokenAt = this.#now;
    request.firstTokenAt ??= request.lastTokenAt;
    return { sequenceId, tokenIds: [this.#nextToken()], finished: false };
  }

  #end(id: string): void {
    const request = this.#open.get(id);
    if (request === undefined) return;
    this.#open.delete(id);
    const { tokenCount: _, ...served } = request;
    this.#outcome.served.push(served);
  }
}

/** On an engine that is there, its rows empty. */
export function serveBatched(engine: Engine, task: BatchedLoad, kind: BatchingKind): Promise<BatchingOutcome> {
  return new BatchingRun(engine, task, kind).run();
}

export async function measureBatching(task: BatchingTask): Promise<BatchingOutcome[]> {
  const engine = new OrtEngine(task.engine);
  try {
    await serveBatched(engine, { ...task, requests: WARM_UP }, 'continuous');
    const outcomes: BatchingOutcome[] = [];
    for (const kind of task.kinds) {
      process.stderr.write(`${task.requests.length} requests, ${kind} batching\n`);
      outcomes.push(await serveBatched(engine, task, kind));
    }
    return outcomes;
  } finally {
    engine.close();
  }
}

if (import.meta.main) {
  const task = JSON.parse(process.argv[2] ?? '{}') as BatchingTask;
  process.stdout.write(`${JSON.stringify(await measureBatching(task))}\n`);
}
