/**
 * SchedulerHarness: runs a scheduler against the fake engine and holds every plan against an account of its own: what each row must
 * hold, who must decode, how big a chunk may be, how much memory may be used, that nobody ends twice.
 */
import { KvCache } from '../../../batcher/kv/kv-cache.ts';
import { Scheduler } from '../../../batcher/scheduler/scheduler.ts';
import { type SchedulerSettings, schedulerSettings } from '../../../batcher/scheduler/scheduler-settings.ts';
import type { SequenceRequest } from '../../../batcher/scheduler/sequence-request.ts';
import type { ChunkEntry, StepOutcome, StepPlan } from '../../../batcher/scheduler/step-plan.ts';
import { prepareMemory } from '../../../batcher/step-memory.ts';
import { argmax, FakeEngine, type FakeEngineOptions } from '../fake-engine.ts';

export interface HarnessOptions {
  settings?: Partial<SchedulerSettings>;
  engine?: FakeEngineOptions;
  budgetBlocks: number;
  storeBlocks?: number;
  checkEvery?: number;
}

export interface Tracked {
  request: SequenceRequest;
  choice: number;
  tokenIds: number[];
  computed: number;
  row: number | undefined;
  end: 'finished' | 'limit' | 'exhausted' | 'stopped' | 'cancelled' | undefined;
  cachedTokens: number | undefined;
  drafted: boolean;
}

export type Choose = (logits: Float32Array, at: { position: number; tracked: Tracked }) => { tokenId: number; finished: boolean };

export const greedy: Choose = logits => ({ tokenId: argmax(logits), finished: false });

function fail(message: string): never {
  throw new Error(message);
}

export class SchedulerHarness {
  now = 0;
  readonly settings: SchedulerSettings;
  readonly engine: FakeEngine;
  readonly kv: KvCache;
  readonly scheduler: Scheduler;
  readonly tracked = new Map<string, Tracked>();
  readonly #alive = new Map<string, Tracked>();
  /** Called between plan and commit. */
  inFlight: ((plan: StepPlan) => void) | undefined;
  onPlan: ((plan: StepPlan) => void) | undefined;
  steps = 0;
  fillers = 0;
  readonly #choose: Choose;
  readonly #checkEvery: number;

  constructor(options: HarnessOptions, choose: Choose = greedy) {
    this.engine = new FakeEngine(options.engine);
    const { rowCount, blockTokens, contextTokens } = this.engine.shape;
    this.settings = schedulerSettings({ maxRunning: rowCount, ...options.settings });
    this.kv = new KvCache({
      rowCount,
      blockTokens,
      budgetBlocks: options.budgetBlocks,
      storeBlocks: options.storeBlocks ?? options.budgetBlocks,
    });
    this.scheduler = new Scheduler({ settings: this.settings, kv: this.kv, contextTokens, clock: () => this.now });
    this.#choose = choose;
    this.#checkEvery = options.checkEvery ?? 1;
  }

  add(request: Partial<SequenceRequest> & Pick<SequenceRequest, 'id' | 'promptTokenIds'>): SequenceRequest {
    const whole: SequenceRequest = {
      tenant: 'a',
      serviceClass: 'default',
      maxNewTokens: 8,
      arrivedAt: this.now,
      reproducible: false,
      choiceIds: [request.id],
      ...request,
    };
    this.scheduler.add(whole);
    whole.choiceIds.forEach((id, choice) => {
      const generated = whole.resumeChoices?.[choice] ?? (choice === 0 ? (whole.resume?.generatedTokenIds ?? []) : []);
      const tracked: Tracked = {
        request: whole,
        choice,
        tokenIds: [...whole.promptTokenIds, ...generated],
        computed: 0,
        row: undefined,
        end: undefined,
        cachedTokens: undefined,
        drafted: false,
      };
      this.tracked.set(id, tracked);
      this.#alive.set(id, tracked);
    });
    return whole;
  }

  get(id: string): Tracked {
    return this.tracked.get(id) ?? fail(`${id} is not tracked`);
  }

  generated(id: string): number[] {
    const { tokenIds, request } = this.get(id);
    return tokenIds.slice(request.promptTokenIds.length);
  }

  alive(): string[] {
    return [...this.#alive.keys()];
  }

  finish(id: string): void {
    this.scheduler.finish(id);
    this.#end(this.get(id), 'stopped', id);
  }

  cancel(requestId: string): void {
    this.scheduler.cancel(requestId);
    for (const [id, tracked] of [...this.#alive]) if (tracked.request.id === requestId) this.#end(tracked, 'cancelled', id);
  }

  /** One step; false when there was nothing to do. */
  async step(): Promise<boolean> {
    const plan = this.scheduler.plan();
    if (plan === undefined) return false;
    this.steps += 1;
    if (plan.step !== this.steps) fail(`step ${plan.step} follows ${this.steps - 1}`);
    this.#checkPlan(plan);
    this.onPlan?.(plan);
    const { engine } = this;
    const left = prepareMemory(engine, plan);
    this.#followRows(plan);
    const outcomes: StepOutcome[] = [];
    for (const chunk of plan.chunks) await this.#runChunk(chunk, outcomes);
    await this.#runDecode(plan, outcomes);
    // As late as they may come: what the runs have overwritten would be found in their place.
    for (const copy of left) engine.saveBlocks(copy);
    this.#checkMemory();
    this.inFlight?.(plan);
    const alive = outcomes.filter(outcome => this.get(outcome.sequenceId).end === undefined);
    for (const outcome of alive) {
      const tracked = this.get(outcome.sequenceId);
      tracked.tokenIds.push(...outcome.tokenIds);
    }
    for (const id of this.scheduler.commit(plan, outcomes)) {
      const tracked = this.get(id);
      const { request } = tracked;
      const limit = Math.min(request.promptTokenIds.length + request.maxNewTokens, this.engine.shape.contextTokens);
      if (tracked.tokenIds.length !== limit) fail(`${id} ended by its limit at ${tracked.tokenIds.length} instead of ${limit} tokens`);
      this.#end(tracked, 'limit', id);
    }
    for (const outcome of alive) if (outcome.finished) this.#end(this.get(outcome.sequenceId), 'finished', outcome.sequenceId);
    this.check();
    return true;
  }

  /** Steps until there is nothing to do. */
  async drain(mostSteps = 100_000): Promise<void> {
    for (let i = 0; i < mostSteps; i += 1) {
      if (!(await this.step())) {
        const left = this.alive();
        if (left.length > 0) fail(`nothing to do, but ${left.join(', ')} did not end`);
        return;
      }
    }
    fail(`not done after ${mostSteps} steps: ${this.alive().join(', ')}`);
  }

  check(): void {
    if (this.steps % this.#checkEvery === 0) this.scheduler.check();
    for (const id of this.#alive.keys()) if (!this.scheduler.has(id)) fail(`${id} was lost`);
  }

  /** After drain: no row, lock or memory is left but the store's, and what rows may keep. */
  checkAtRest(): void {
    this.scheduler.check();
    const usage = this.kv.usage();
    if (usage.rowBlocks !== 0 || usage.protectedBlocks !== 0)
      fail(`rows hold ${usage.rowBlocks} blocks, ${usage.protectedBlocks} are locked`);
    const spareBlocks = this.engine.usedBlocks - usage.evictableBlocks;
    const mostSpare = Math.min(Math.floor(this.settings.spareShare * usage.budgetBlocks), usage.freeBlocks);
    if (spareBlocks < 0 || spareBlocks > mostSpare)
      fail(`the engine uses ${this.engine.usedBlocks} blocks, the store has ${usage.evictableBlocks}, rows may keep ${mostSpare}`);
    if (this.scheduler.runningCount !== 0 || this.scheduler.waitingCount !== 0 || this.scheduler.waitingTokens !== 0)
      fail('somebody is still counted');
  }

  #end(tracked: Tracked, end: NonNullable<Tracked['end']>, id: string): void {
    if (tracked.end !== undefined) fail(`${id} ended twice: ${tracked.end}, then ${end}`);
    tracked.end = end;
    this.#alive.delete(id);
    if (this.scheduler.has(id)) fail(`${id} has ended and is still there`);
  }

  #checkPlan(plan: StepPlan): void {
    const { settings } = this;
    if (plan.preempted.length > 0 && plan.admitted.length > 0) fail('a step that preempted admitted');
    for (const id of plan.preempted) {
      const tracked = this.get(id);
      tracked.row = undefined;
      tracked.computed = 0;
    }
    for (const id of plan.exhausted) {
      const tracked = this.get(id);
      if (Math.ceil(tracked.tokenIds.length / this.kv.shape.blockTokens) <= this.kv.shape.budgetBlocks)
        fail(`${id} is not larger than the budget`);
      this.#end(tracked, 'exhausted', id);
    }
    for (const admission of plan.admitted) {
      const tracked = this.get(admission.sequenceId);
      if (tracked.computed !== 0) fail(`${admission.sequenceId} was admitted twice`);
      tracked.computed = admission.cachedTokens;
      tracked.cachedTokens ??= admission.cachedTokens;
      if (admission.cachedTokens >= tracked.tokenIds.length) fail('nothing is left to compute');
    }
    let tokens = 0;
    let chunkCount = 0;
    const chunked = new Map<string, ChunkEntry>();
    for (const chunk of plan.chunks) {
      const tracked = this.get(chunk.sequenceId);
      if (chunked.has(chunk.sequenceId)) fail(`${chunk.sequenceId} has two chunks`);
      chunked.set(chunk.sequenceId, chunk);
      tokens += chunk.tokenIds.length;
      if (chunk.start !== tracked.computed)
        fail(`a chunk of ${chunk.sequenceId} starts at ${chunk.start}, computed are ${tracked.computed}`);
      if (chunk.purpose === 'verify') continue;
      this.#checkLogits(chunk, tracked);
      chunkCount += 1;
      if (chunk.tokenIds.length > this.scheduler.chunkTokensFrom(chunk.start)) fail(`a chunk has ${chunk.tokenIds.length} tokens`);
      if (chunk.tokenIds.length === 1 && tracked.request.promptTokenIds.length > 1) fail('a chunk has one token');
    }
    if (chunkCount > settings.maxChunksPerStep) fail(`${chunkCount} chunks in a step`);
    plan.decode.forEach((entry, row) => {
      if (chunked.get(entry.sequenceId)?.row === row && entry.sample) fail('a sequence has a chunk and a decode entry');
      tokens += 1;
    });
    if (tokens > settings.maxBatchedTokens + this.fillersOf(plan)) fail(`${tokens} tokens in a step`);
  }

  /** A prompt that is scored has the logits of every position of its own, in chunks that are small enough; any other those of its last one. */
  #checkLogits(chunk: ChunkEntry, tracked: Tracked): void {
    const { request } = tracked;
    const end = chunk.start + chunk.tokenIds.length;
    if (chunk.sample !== (end === tracked.tokenIds.length)) fail(`a chunk of ${chunk.sequenceId} samples at the wrong position`);
    const isScoring = request.scoresPrompt === true && tracked.tokenIds.length === request.promptTokenIds.length;
    const logitCount = isScoring ? chunk.tokenIds.length : chunk.sample ? 1 : 0;
    if (chunk.logitCount !== logitCount) fail(`a chunk of ${chunk.sequenceId} has ${chunk.logitCount} logits, wanted are ${logitCount}`);
    if (!isScoring) return;
    if (chunk.tokenIds.length > this.settings.scoringChunkTokens) fail(`a scored chunk has ${chunk.tokenIds.length} tokens`);
    // Undefined where it took the row of another choice over, which ended during the prefill.
    if ((tracked.cachedTokens ?? 0) !== 0) fail(`${chunk.sequenceId} is scored and took ${tracked.cachedTokens} tokens from the store`);
  }

  /** Entries that compute nothing that counts. */
  fillersOf(plan: StepPlan): number {
    return plan.decode.filter(entry => this.#isFiller(plan, entry.sequenceId, entry.sample)).length;
  }

  #isFiller(plan: StepPlan, sequenceId: string, sample: boolean): boolean {
    if (sample) return false;
    const tracked = this.get(sequenceId);
    if (plan.chunks.some(chunk => chunk.sequenceId === sequenceId)) return true;
    return !tracked.request.reproducible || tracked.computed < tracked.request.promptTokenIds.length;
  }

  /** Every row named in the plan must hold exactly the first tokens of its sequence, computed as it demands. */
  #followRows(plan: StepPlan): void {
    for (const chunk of plan.chunks) {
      const tracked = this.get(chunk.sequenceId);
      tracked.row = chunk.row;
      this.#checkContent(tracked, chunk.row, chunk.start);
      const known = tracked.tokenIds.slice(chunk.start, chunk.start + chunk.tokenIds.length);
      if (known.some((tokenId, i) => chunk.tokenIds[i] !== tokenId)) fail(`a chunk of ${chunk.sequenceId} has other tokens`);
      if (chunk.purpose === 'prefill' && known.length !== chunk.tokenIds.length) fail(`a chunk of ${chunk.sequenceId} is too long`);
    }
    plan.decode.forEach((entry, row) => {
      const tracked = this.get(entry.sequenceId);
      tracked.row = row;
      if (this.#isFiller(plan, entry.sequenceId, entry.sample)) {
        this.fillers += 1;
        const chunk = plan.chunks.find(each => each.sequenceId === entry.sequenceId);
        const end = chunk === undefined ? tracked.computed : chunk.start + chunk.tokenIds.length;
        if (entry.position < end) fail(`a filler overwrites position ${entry.position} of ${entry.sequenceId}`);
        return;
      }
      if (entry.position !== tracked.computed) fail(`${entry.sequenceId} decodes at ${entry.position}, computed are ${tracked.computed}`);
      if (entry.tokenId !== tracked.tokenIds[entry.position]) fail(`${entry.sequenceId} decodes another token`);
      if (entry.sample !== (entry.position === tracked.tokenIds.length - 1)) fail(`${entry.sequenceId} samples at the wrong position`);
      this.#checkContent(tracked, row, entry.position);
    });
    const named = new Set([...plan.chunks.map(chunk => chunk.sequenceId), ...plan.decode.map(entry => entry.sequenceId)]);
    for (const [id, tracked] of this.#alive) {
      const mustDecode = tracked.request.reproducible
        ? tracked.computed >= tracked.request.promptTokenIds.length
        : tracked.computed > 0 && tracked.computed === tracked.tokenIds.length - 1;
      if (mustDecode && !named.has(id)) fail(`${id} was left out of the decode batch`);
    }
  }

  #checkContent(tracked: Tracked, row: number, count: number): void {
    const { request } = tracked;
    const isStrict = request.reproducible && request.speculation !== true;
    this.engine.cells(row, count).forEach((cell, position) => {
      if (cell.tokenId !== tracked.tokenIds[position]) fail(`row ${row} holds another token than ${request.id} at ${position}`);
      if (!isStrict || request.promptTokenIds.length === 1) return;
      const kernel = position < request.promptTokenIds.length ? 'prefill' : 'decode';
      if (cell.kernel !== kernel) fail(`position ${position} of ${request.id} came from ${cell.kernel}`);
    });
  }

  async #runChunk(chunk: ChunkEntry, outcomes: StepOutcome[]): Promise<void> {
    const logits = await this.engine.prefill(chunk);
    const end = chunk.start + chunk.tokenIds.length;
    if (chunk.purpose === 'verify') {
      this.#verify(chunk, logits, outcomes);
      return;
    }
    for (const id of chunk.choiceIds) {
      const tracked = this.get(id);
      tracked.computed = end;
      if (chunk.sample) {
        const last = logits.subarray((chunk.logitCount - 1) * this.engine.shape.vocabSize);
        const { tokenId, finished } = this.#choose(last, { position: end, tracked });
        outcomes.push({ sequenceId: id, tokenIds: [tokenId], finished });
      }
    }
  }

  #verify(chunk: ChunkEntry, logits: Float32Array, outcomes: StepOutcome[]): void {
    const { vocabSize } = this.engine.shape;
    const tracked = this.get(chunk.sequenceId);
    tracked.drafted = true;
    const tokenIds: number[] = [];
    let finished = false;
    for (let i = 0; i < chunk.logitCount; i += 1) {
      const chosen = this.#choose(logits.subarray(i * vocabSize, (i + 1) * vocabSize), { position: chunk.start + 1 + i, tracked });
      tokenIds.push(chosen.tokenId);
      finished = chosen.finished;
      if (finished || chunk.tokenIds[i + 1] !== chosen.tokenId) break;
    }
    tracked.computed = chunk.start + tokenIds.length;
    outcomes.push({ sequenceId: chunk.sequenceId, tokenIds, finished });
  }

  async #runDecode(plan: StepPlan, outcomes: StepOutcome[]): Promise<void> {
    if (plan.decode.length === 0) return;
    const { vocabSize, rowCount } = this.engine.shape;
    const isReproducible = plan.decode.some(entry => entry.reproducible);
    const fillers = plan.decode.map(entry => this.#isFiller(plan, entry.sequenceId, entry.sample));
    const logits = await this.engine.decode({
      tokenIds: plan.decode.map(entry => entry.tokenId),
      positions: plan.decode.map(entry => entry.position),
      minRows: isReproducible ? Math.min(2, rowCount) : 1,
    });
    plan.decode.forEach((entry, row) => {
      if (fillers[row]) return;
      const tracked = this.get(entry.sequenceId);
      tracked.computed = entry.position + 1;
      if (!entry.sample) return;
      const { tokenId, finished } = this.#choose(logits.subarray(row * vocabSize, (row + 1) * vocabSize), {
        position: entry.position + 1,
        tracked,
      });
      outcomes.push({ sequenceId: entry.sequenceId, tokenIds: [tokenId], finished });
    });
  }

  #checkMemory(): void {
    const { budgetBlocks } = this.kv.shape;
    if (this.engine.usedBlocks > budgetBlocks) fail(`${this.engine.usedBlocks} blocks are in use, the budget is ${budgetBlocks}`);
  }
}
