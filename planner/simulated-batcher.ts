/**
 * SimulatedBatcher: a batcher whose engine only takes time: the product's own scheduler, KV bookkeeping, step rates and chunk policy, driven step by step
 * as the loop does; steps in which every stream only gets its next token are taken together.
 * Guarantee: it never decides anything that the product would not, given these step times. Not simulated: drafts, sampling that ends an answer early.
 */
import { openScheduler } from '../batcher/batcher-scheduler.ts';
import { sizeChunks } from '../batcher/chunk-policy.ts';
import type { Scheduler } from '../batcher/scheduler/scheduler.ts';
import { copiedTokens, type StepOutcome, type StepPlan } from '../batcher/scheduler/step-plan.ts';
import { StepRates } from '../batcher/step-rates.ts';
import type { CardLoad } from '../shared/model-load.ts';
import type { ServedRequest } from './goodput.ts';
import type { LatencyHistogram } from './latency-histogram.ts';
import type { SimulatedEngine } from './simulated-engine.ts';

/** What of a batcher's settings matters to its speed, and by which of its names. */
export interface SimulatedSettings {
  maxRunning: number;
  maxBatchedTokens: number;
  itlSloMs: number;
  /** Deadline of a first token, by which those who wait are ordered; undefined for none. */
  ttftSloMs: number | undefined;
  /** Jobs taken off the queue ahead of a free row. */
  prefetch: number;
  contextTokens: number;
  kvTokens: number;
  /** Off where no two prompts begin alike, which makes large simulations lighter and changes nothing but a resumed sequence's prefill. */
  hasPrefixStore: boolean;
}

export const DEFAULT_SIMULATED = { maxRunning: 32, maxBatchedTokens: 512, itlSloMs: 150, ttftSloMs: undefined, prefetch: 4 } as const;

export interface SimulatedRequest {
  id: string;
  /** At the client. */
  arrivedAt: number;
  promptTokenIds: readonly number[];
  completionTokens: number;
  /** Of its prompt, as a gateway tells them from the text; absent where none is known, and the prompt's own count. */
  estimatedPromptTokens?: number;
}

export interface SimulatedBatcherParts {
  engine: SimulatedEngine;
  settings: SimulatedSettings;
  /** From a sampled token to the client. */
  deliveryMs: number;
  gaps: LatencyHistogram;
  onEnded(served: ServedRequest, request: SimulatedRequest): void;
}

/** Sums over time, from which means are made. */
export interface BatcherUse {
  /** Time in which a step ran. */
  busyMs: number;
  /** Of that, in prefill chunks. */
  prefillMs: number;
  /** Time in decode runs, and the same times the rows of each. */
  decodeStepMs: number;
  rowMs: number;
  /** Steps that computed something. */
  stepCount: number;
  prefillTokens: number;
  decodeTokens: number;
  peakKvUse: number;
  preemptionCount: number;
}

export function noUse(): BatcherUse {
  return {
    busyMs: 0,
    prefillMs: 0,
    decodeStepMs: 0,
    rowMs: 0,
    stepCount: 0,
    prefillTokens: 0,
    decodeTokens: 0,
    peakKvUse: 0,
    preemptionCount: 0,
  };
}

interface Stream {
  request: SimulatedRequest;
  tokenId: number;
  cachedTokens: number;
  firstTokenAt: number | undefined;
  lastTokenAt: number;
}

interface StepUnderWay {
  plan: StepPlan;
  startedAt: number;
  /** When each chunk is done. */
  chunkEnds: number[];
}

/** So many steps from `startedAt` on, of these rows with so much context in all at the first of them. */
interface QuietRun {
  steps: number;
  startedAt: number;
  rows: number;
  contextTokens: number;
  /** The scheduler has them behind it; only their time is not over. */
  isTaken: boolean;
}

const BLOCK_TOKENS = 16;

export class SimulatedBatcher {
  /** When it next does something by itself; infinite while it is idle. */
  nextAt = Number.POSITIVE_INFINITY;
  /** Of whoever keeps it in a heap. */
  place: number | undefined;
  readonly #parts: SimulatedBatcherParts;
  readonly #scheduler: Scheduler;
  readonly #policy: Parameters<typeof sizeChunks>[0] & { rates: StepRates };
  readonly #streams = new Map<string, Stream>();
  readonly #use = noUse();
  readonly #budgetBlocks: number;
  #now = 0;
  #tokenId = 0;
  #step: StepUnderWay | undefined;
  #quiet: QuietRun | undefined;

  constructor(parts: SimulatedBatcherParts) {
    const { maxRunning, maxBatchedTokens, contextTokens, kvTokens, hasPrefixStore, itlSloMs } = parts.settings;
    this.#parts = parts;
    this.#budgetBlocks = Math.max(1, Math.floor(kvTokens / BLOCK_TOKENS));
    const { scheduler } = openScheduler({
      ...{ maxRunning, maxBatchedTokens, contextTokens, budgetBlocks: this.#budgetBlocks },
      ...(!hasPrefixStore && { storeBlocks: 0 }),
      clock: () => this.#now,
    });
    this.#scheduler = scheduler;
    this.#policy = { rates: new StepRates(), scheduler, itlSloMs };
  }

  get isIdle(): boolean {
    return this.#step === undefined && this.#quiet === undefined;
  }

  /** Sequences that it has and no row for. */
  get waitingCount(): number {
    return this.#scheduler.waitingCount;
  }

  get openCount(): number {
    return this.#streams.size;
  }

  /** As its card tells it. */
  get load(): CardLoad {
    const { runningCount, waitingCount, waitingTokens } = this.#scheduler;
    const { prefillTokensPerSecond, decodeTokensPerSecond } = this.#policy.rates;
    const maxRunningCount = this.#parts.settings.maxRunning;
    return { runningCount, maxRunningCount, waitingCount, waitingTokens, prefillTokensPerSecond, decodeTokensPerSecond };
  }

  get use(): BatcherUse {
    return { ...this.#use, preemptionCount: this.#scheduler.preemptionCount };
  }

  /** The scheduler has the request from `now` on; a step under way is finished first. Throws RequestRefused for what could not even run alone. */
  submit(request: SimulatedRequest, now: number): void {
    this.#cutQuietRun(now);
    const { ttftSloMs } = this.#parts.settings;
    this.#now = Math.max(this.#now, now);
    this.#scheduler.add({
      id: request.id,
      tenant: 't',
      serviceClass: 'default',
      promptTokenIds: request.promptTokenIds,
      maxNewTokens: request.completionTokens,
      arrivedAt: request.arrivedAt,
      ttftDeadlineAt: ttftSloMs === undefined ? undefined : request.arrivedAt + ttftSloMs,
      reproducible: false,
      choiceIds: [request.id],
    });
    // Of a kind that no prompt has: what was generated is shared with nobody.
    this.#streams.set(request.id, { request, tokenId: --this.#tokenId, cachedTokens: 0, firstTokenAt: undefined, lastTokenAt: 0 });
    if (this.isIdle) this.#begin();
  }

  /** Its own event has come: what it was doing at `nextAt` is done, and it begins the next thing. */
  advance(): void {
    this.#now = this.nextAt;
    if (this.#quiet !== undefined) this.#finishQuietRun(this.#quiet);
    else if (this.#step !== undefined) this.#finishStep(this.#step);
    this.#begin();
  }

  #begin(): void {
    const steps = this.#scheduler.quietSteps;
    if (steps > 1) {
      this.#beginQuietRun(steps);
      return;
    }
    sizeChunks(this.#policy);
    const plan = this.#scheduler.plan();
    if (plan === undefined) {
      this.nextAt = Number.POSITIVE_INFINITY;
      return;
    }
    const { engine } = this.#parts;
    let at = this.#now + engine.copyMs(copiedTokens(plan, BLOCK_TOKENS));
    for (const { sequenceId, cachedTokens, resumed } of plan.admitted) {
      if (resumed) continue;
      this.#streams.get(sequenceId)!.cachedTokens = cachedTokens;
      at += engine.requestMs;
    }
    const chunkEnds: number[] = [];
    for (const { start, tokenIds } of plan.chunks) {
      const ms = engine.prefillMs(start, tokenIds.length, plan.decode.length > 0);
      at += ms;
      chunkEnds.push(at);
      this.#policy.rates.prefilled({ start, tokens: tokenIds.length }, ms);
      this.#use.prefillTokens += tokenIds.length;
      this.#use.prefillMs += ms;
    }
    const rows = plan.decode.length;
    if (rows > 0) {
      const ms = engine.decodeMs(
        rows,
        plan.decode.reduce((sum, entry) => sum + entry.position, 0),
      );
      at += ms;
      this.#decoded(rows, ms);
    } else this.#policy.rates.stepped(0);
    this.#step = { plan, startedAt: this.#now, chunkEnds };
    this.nextAt = at;
  }

  #finishStep({ plan, startedAt, chunkEnds }: StepUnderWay): void {
    this.#step = undefined;
    const outcomes: StepOutcome[] = [];
    plan.chunks.forEach((chunk, index) => {
      if (chunk.sample) outcomes.push(this.#token(chunk.sequenceId, chunkEnds[index]!));
    });
    for (const entry of plan.decode) if (entry.sample) outcomes.push(this.#token(entry.sequenceId, this.#now));
    for (const sequenceId of this.#scheduler.commit(plan, outcomes)) this.#end(sequenceId);
    for (const sequenceId of plan.exhausted) this.#end(sequenceId);
    if (plan.chunks.length + plan.decode.length > 0) this.#use.stepCount += 1;
    this.#use.busyMs += this.#now - startedAt;
    if (plan.admitted.length + plan.chunks.length > 0) this.#noteKvUse();
  }

  #token(sequenceId: string, at: number): StepOutcome {
    const stream = this.#streams.get(sequenceId)!;
    if (stream.firstTokenAt === undefined) stream.firstTokenAt = at;
    else this.#parts.gaps.observe(at - stream.lastTokenAt);
    stream.lastTokenAt = at;
    return { sequenceId, tokenIds: [stream.tokenId], finished: false };
  }

  #end(sequenceId: string): void {
    const stream = this.#streams.get(sequenceId);
    if (stream === undefined) return;
    this.#streams.delete(sequenceId);
    const { request, firstTokenAt, lastTokenAt, cachedTokens } = stream;
    const { deliveryMs, onEnded } = this.#parts;
    onEnded(
      {
        arrivedAt: request.arrivedAt,
        promptTokens: request.promptTokenIds.length,
        cachedTokens,
        completionTokens: request.completionTokens,
        firstTokenAt: (firstTokenAt ?? this.#now) + deliveryMs,
        lastTokenAt: lastTokenAt + deliveryMs,
        outcome: 'whole',
      },
      request,
    );
  }

  #beginQuietRun(steps: number): void {
    let contextTokens = 0;
    let rows = 0;
    for (const sequence of this.#scheduler.runningSequences) {
      contextTokens += sequence.computedCount;
      rows += 1;
    }
    this.#quiet = { steps, startedAt: this.#now, rows, contextTokens, isTaken: false };
    this.nextAt = this.#quietEnd(this.#quiet, steps);
  }

  /** Each step has a token more of context in every row, so that the times are an arithmetic series. */
  #quietEnd({ startedAt, rows, contextTokens }: QuietRun, steps: number): number {
    const { engine } = this.#parts;
    const first = engine.decodeMs(rows, contextTokens);
    const growth = engine.decodeMs(rows, contextTokens + rows) - first;
    return startedAt + steps * first + ((steps * (steps - 1)) / 2) * growth;
  }

  /** What comes is seen when the step under way is over: the run ends there. It was planned before, so the scheduler gets it behind it. */
  #cutQuietRun(now: number): void {
    const run = this.#quiet;
    if (run === undefined || run.isTaken) return;
    let [before, after] = [0, run.steps];
    while (after - before > 1) {
      const half = (before + after) >>> 1;
      if (this.#quietEnd(run, half) < now) before = half;
      else after = half;
    }
    run.steps = after;
    this.nextAt = this.#quietEnd(run, after);
    this.#takeQuietRun(run);
  }

  #takeQuietRun(run: QuietRun): void {
    run.isTaken = true;
    this.#scheduler.takeQuietSteps(run.steps, id => this.#streams.get(id)!.tokenId);
  }

  #finishQuietRun(run: QuietRun): void {
    this.#quiet = undefined;
    if (!run.isTaken) this.#takeQuietRun(run);
    const firstEnd = this.#quietEnd(run, 1);
    for (const sequence of this.#scheduler.runningSequences) {
      const stream = this.#streams.get(sequence.id)!;
      this.#parts.gaps.observe(firstEnd - stream.lastTokenAt);
      stream.lastTokenAt = this.#now;
    }
    for (let step = 0, from = run.startedAt; step < run.steps; step++) {
      const end = this.#quietEnd(run, step + 1);
      if (step > 0) this.#parts.gaps.observe(end - from, run.rows);
      this.#decoded(run.rows, end - from);
      from = end;
    }
    this.#use.stepCount += run.steps;
    this.#use.busyMs += this.#now - run.startedAt;
    this.#noteKvUse();
  }

  #decoded(rows: number, ms: number): void {
    this.#policy.rates.decoded(rows, ms);
    this.#policy.rates.stepped(ms);
    this.#use.decodeStepMs += ms;
    this.#use.rowMs += rows * ms;
    this.#use.decodeTokens += rows;
  }

  #noteKvUse(): void {
    const use = this.#scheduler.kvUsage.rowBlocks / this.#budgetBlocks;
    if (use > this.#use.peakKvUse) this.#use.peakKvUse = use;
  }
}
