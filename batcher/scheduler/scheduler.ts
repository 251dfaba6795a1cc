/**
 * Scheduler: decides what each step of the engine computes: plan gives a step as plain data, commit takes what came of it.
 * Guarantee: every sequence of an accepted request ends exactly once, and a plan never reads a row or block that does not hold what it
 * should.
 *
 * There is no prefill phase and no decode phase: each sequence has known and computed tokens, and a token budget lets the computed ones
 * catch up. One plan is made in this order, which is also the order of rights:
 *
 *   1 retire   rows of ended sequences: whole blocks to the prefix store, the row is free
 *   2 share    forks of n choices: a row each; prefilled chunks: whole blocks to the store, so that others need not wait for the end
 *   3 grow     every decoding sequence gets the block for its next token; if need be the lowest class, latest admitted is preempted
 *   4 pack     decoding rows become the first ones
 *   5 prefill  chunks for running prefills and for newly admitted sequences; none is admitted in a step that preempted
 *   6 decode   one entry for each of the first rows; decode is never left out
 *
 * Between plan and commit the engine runs; add, finish and cancel are legal then: what ended in flight keeps its row until commit.
 */

import type { KvCache, KvUsage } from '../kv/kv-cache.ts';
import { DecodePlanner } from './decode-planner.ts';
import { isEmpty, makePlanDraft, type PlanDraft } from './plan-draft.ts';
import { PrefillPlanner } from './prefill-planner.ts';
import { quietSteps, takeQuietSteps } from './quiet-steps.ts';
import { RowMemory } from './row-memory.ts';
import { RowPlanner } from './row-planner.ts';
import { RunningSet } from './running-set.ts';
import type { SchedulerSettings } from './scheduler-settings.ts';
import { Sequence } from './sequence.ts';
import { RequestRefused, resumedTokens, type SequenceRequest, validateRequest } from './sequence-request.ts';
import type { ChunkEntry, StepOutcome, StepPlan } from './step-plan.ts';
import { type TenantService, WaitingQueue } from './waiting-queue.ts';

/** Fewer could leave a single token for the last chunk. */
const LEAST_CHUNK_TOKENS = 4;

export interface SchedulerParts {
  settings: SchedulerSettings;
  kv: KvCache;
  /** Tokens that one row of the KV cache can hold. */
  contextTokens: number;
  /** Milliseconds; deadlines and arrivals are by it. */
  clock(): number;
}

interface Live {
  request: SequenceRequest;
  sequences: Set<Sequence>;
}

export class Scheduler {
  readonly #settings: SchedulerSettings;
  readonly #kv: KvCache;
  readonly #contextTokens: number;
  readonly #clock: () => number;
  readonly #waiting: WaitingQueue;
  readonly #running: RunningSet;
  readonly #rowMemory: RowMemory;
  readonly #rowPlanner: RowPlanner;
  readonly #prefillPlanner: PrefillPlanner;
  readonly #decodePlanner: DecodePlanner;
  /** By choice. */
  readonly #sequences = new Map<string, Sequence>();
  readonly #requests = new Map<string, Live>();
  #flight: PlanDraft | undefined;
  #step = 0;
  #chunkTokens: number;
  #tokensFrom: ((start: number) => number) | undefined;

  constructor(parts: SchedulerParts) {
    const { settings, kv } = parts;
    if (settings.maxRunning > kv.shape.rowCount)
      throw new RangeError(`maxRunning (${settings.maxRunning}) must not exceed the ${kv.shape.rowCount} rows of the KV cache.`);
    this.#settings = settings;
    this.#kv = kv;
    this.#contextTokens = parts.contextTokens;
    this.#clock = parts.clock;
    this.#waiting = new WaitingQueue(settings);
    this.#running = new RunningSet(settings.maxRunning);
    this.#rowMemory = new RowMemory(kv, {
      rowCount: settings.maxRunning,
      spareBlocks: Math.floor(settings.spareShare * kv.shape.budgetBlocks),
    });
    this.#rowPlanner = new RowPlanner({
      kv,
      running: this.#running,
      waiting: this.#waiting,
      rowMemory: this.#rowMemory,
      clock: parts.clock,
      onExhausted: sequence => this.#forget(sequence),
    });
    this.#prefillPlanner = new PrefillPlanner({
      settings,
      kv,
      running: this.#running,
      waiting: this.#waiting,
      clock: parts.clock,
      chunkTokensFrom: start => this.chunkTokensFrom(start),
      onExhausted: sequence => this.#forget(sequence),
    });
    this.#decodePlanner = new DecodePlanner({ settings, kv, running: this.#running, rowMemory: this.#rowMemory });
    this.#chunkTokens = Math.min(settings.chunkTokens, settings.maxBatchedTokens);
  }

  /** Sequences with a row, or about to get one from a shared prefill. */
  get runningCount(): number {
    return this.#running.count + this.#rowPlanner.forkCount;
  }

  /** Sequences without a row; choices that share a prefill count once. */
  get waitingCount(): number {
    return this.#waiting.size;
  }

  get waitingTokens(): number {
    return this.#waiting.waitingTokens;
  }

  get preemptionCount(): number {
    return this.#rowPlanner.preemptionCount;
  }

  /** Rows that could take a sequence in the next step, as far as rows are concerned. */
  get freeRowCount(): number {
    return Math.max(0, this.#settings.maxRunning - this.#running.claimedRowCount - this.#rowPlanner.forkCount);
  }

  /** Whether a stream goes on in the next step, which a prefill chunk beside it would hold up. */
  get isDecoding(): boolean {
    if (this.#rowPlanner.forkCount > 0) return true;
    for (const sequence of this.#running) if (!sequence.isPrefilling) return true;
    return false;
  }

  get chunkTokens(): number {
    return this.#chunkTokens;
  }

  get kvUsage(): KvUsage {
    return this.#kv.usage();
  }

  get tenants(): TenantService[] {
    return this.#waiting.tenants();
  }

  /** Sequences with a row, from the most to the least entitled to it. Not to be kept over a plan. */
  get runningSequences(): Iterable<Readonly<Pick<Sequence, 'id' | 'computedCount'>>> {
    return this.#running;
  }

  /** Whether the choice was accepted and has not ended. */
  has(sequenceId: string): boolean {
    return this.#sequences.has(sequenceId);
  }

  /**
   * Bounds the next chunks: all by `tokens`, and by `tokensFrom` those that start at that position, since a chunk takes the longer the more
   * is before it. The loop sizes them from the wanted inter-token latency and the measured cost.
   */
  setChunkTokens(tokens: number, tokensFrom?: (start: number) => number): void {
    if (Number.isNaN(tokens)) throw new RangeError('A chunk must have a number of tokens.');
    this.#chunkTokens = Math.max(LEAST_CHUNK_TOKENS, Math.min(Math.floor(tokens), this.#settings.maxBatchedTokens));
    this.#tokensFrom = tokensFrom;
  }

  /** Bound of a chunk from that position. */
  chunkTokensFrom(start: number): number {
    const tokens = this.#tokensFrom?.(start) ?? this.#chunkTokens;
    return Math.max(LEAST_CHUNK_TOKENS, Math.min(Math.floor(tokens), this.#chunkTokens));
  }

  /** The measured rate, by which it is judged whether a deadline can be met. */
  setPrefillRate(tokensPerSecond: number): void {
    this.#waiting.setPrefillRate(tokensPerSecond);
  }

  /** Accepts a request; its choices wait. Throws RequestRefused for one that could not run even alone. */
  add(request: SequenceRequest): void {
    validateRequest(request, {
      contextTokens: this.#contextTokens,
      budgetTokens: this.#kv.shape.budgetBlocks * this.#kv.shape.blockTokens,
    });
    if (this.#requests.has(request.id)) throw new RequestRefused('duplicate_id', `Request ${request.id} is here already.`);
    for (const id of request.choiceIds) {
      if (this.#sequences.has(id)) throw new RequestRefused('duplicate_id', `Choice ${id} is here already.`);
    }
    if (this.#waiting.size >= this.#settings.maxWaiting)
      throw new RequestRefused('waiting_full', `${this.#waiting.size} requests are waiting; no more are taken.`);
    const live: Live = { request, sequences: new Set() };
    this.#requests.set(request.id, live);
    const resumed = resumedTokens(request);
    const contextTokens = this.#contextTokens;
    const sequences =
      resumed === undefined
        ? [new Sequence(request, { choiceIds: [...request.choiceIds], contextTokens })]
        : request.choiceIds.map((id, i) => new Sequence(request, { choiceIds: [id], contextTokens, generatedTokenIds: resumed[i]! }));
    const now = this.#clock();
    for (const sequence of sequences) {
      live.sequences.add(sequence);
      for (const id of sequence.choiceIds) this.#sequences.set(id, sequence);
      this.#waiting.push(sequence, now);
    }
  }

  /** Ends one choice, for instance by a stop string. Nothing happens when it has ended already. */
  finish(sequenceId: string): void {
    const sequence = this.#sequences.get(sequenceId);
    if (sequence === undefined) return;
    if (sequence.choiceIds.length > 1) {
      sequence.choiceIds = sequence.choiceIds.filter(id => id !== sequenceId);
      this.#sequences.delete(sequenceId);
    } else {
      this.#end(sequence);
    }
  }

  /** Ends a whole request, waiting or running. Nothing happens when it is not here. */
  cancel(requestId: string): void {
    const live = this.#requests.get(requestId);
    if (live === undefined) return;
    for (const sequence of [...live.sequences]) this.#end(sequence);
  }

  /** Whether drafts for this choice would be taken at all. */
  mayTakeDrafts(sequenceId: string): boolean {
    return this.#sequences.get(sequenceId)?.mayTakeDrafts ?? false;
  }

  /**
   * Offers tokens that may follow, to be verified in the next plan: that feeds the last known token and the drafts in one chunk, and
   * commit expects the accepted tokens and the one after. They are dropped when the next plan has a reason to.
   */
  proposeDrafts(sequenceId: string, tokenIds: readonly number[]): void {
    const sequence = this.#sequences.get(sequenceId);
    if (sequence === undefined || this.#flight !== undefined || !sequence.mayTakeDrafts) return;
    sequence.drafts = tokenIds;
  }

  /** The next step, or undefined when there is nothing to do. Every plan must be committed before the next one. */
  plan(): StepPlan | undefined {
    if (this.#flight !== undefined) throw new Error('A plan is in flight; it must be committed first.');
    if (this.#running.count + this.#waiting.size === 0 && this.#rowPlanner.isIdle) return undefined;
    const draft = makePlanDraft(this.#step + 1);
    this.#rowPlanner.plan(draft);
    const decodingTokens = this.#decodePlanner.takeDrafts(draft);
    const verificationCount = draft.chunks.length;
    const length = this.#decodePlanner.pack(draft, this.#chunkTokens);
    const budgetTokens = this.#settings.maxBatchedTokens - decodingTokens;
    this.#prefillPlanner.plan(draft, { chunkTokens: this.#chunkTokens, budgetTokens });
    // Right before the decode batch: else a stream that goes from one to the other would have two prefill chunks between two tokens.
    draft.chunks.push(...draft.chunks.splice(0, verificationCount));
    draft.chunkSequences.push(...draft.chunkSequences.splice(0, verificationCount));
    this.#decodePlanner.plan(draft, length);
    this.#rowMemory.release(draft);
    if (isEmpty(draft.plan)) return undefined;
    this.#step += 1;
    this.#flight = draft;
    return draft.plan;
  }

  /**
   * Takes what came of a plan: an outcome for each choice that was sampled and has not ended in the meantime. Returns the choices that
   * have ended here because they reached maxNewTokens or the context, without being reported as finished.
   */
  commit(plan: StepPlan, outcomes: readonly StepOutcome[]): readonly string[] {
    const draft = this.#flight;
    if (draft === undefined || draft.plan !== plan) throw new Error(`Step ${plan.step} is not in flight.`);
    this.#flight = undefined;
    for (const handle of draft.locked) this.#kv.unlock(handle);
    const byId = new Map<string, StepOutcome>();
    for (const outcome of outcomes) {
      if (byId.has(outcome.sequenceId)) throw new Error(`Step ${plan.step} has two outcomes for ${outcome.sequenceId}.`);
      byId.set(outcome.sequenceId, outcome);
    }
    const limited: string[] = [];
    for (let i = 0; i < draft.chunks.length; i += 1) {
      const sequence = draft.chunkSequences[i]!;
      const chunk = draft.chunks[i]!;
      if (sequence.isPrefilling) this.#commitPrefill(sequence, chunk, { byId, limited });
      else this.#commitVerification(sequence, chunk, { byId, limited });
    }
    for (let row = 0; row < draft.decode.length; row += 1) {
      const sequence = draft.decodeSequences[row];
      if (sequence === undefined) continue;
      sequence.completeDecode();
      if (!draft.decode[row]!.sample || sequence.state === 'ended') continue;
      this.#accept(sequence, outcomeOf(byId, sequence.id), limited);
    }
    return limited;
  }

  /** How many of the next steps only decode and end nobody, as long as nothing comes; 0 when the next one may do anything else. */
  get quietSteps(): number {
    if (this.#flight !== undefined || !this.#rowPlanner.isIdle) return 0;
    return quietSteps(this.#quietParts);
  }

  /** Takes so many of them at once, as plans and commits one after the other would; a sequence's tokens are all of one id. For simulations. */
  takeQuietSteps(steps: number, tokenIdOf: (sequenceId: string) => number): void {
    if (!(Number.isInteger(steps) && steps >= 1 && steps <= this.quietSteps))
      throw new RangeError(`${steps} steps in a row are not quiet.`);
    takeQuietSteps(steps, this.#quietParts, tokenIdOf);
    this.#step += steps;
  }

  /** Throws when an invariant is broken. Walks everything. */
  check(): void {
    this.#kv.check();
    this.#waiting.check();
    this.#running.check();
    const withRow = new Set([...this.#running, ...this.#rowPlanner.retiring]);
    const { rows } = this.#running;
    for (let row = 0; row < rows.rowCount; row += 1) {
      const sequence = rows.at(row);
      if (sequence === undefined) {
        if (this.#kv.heldBlocks(row) !== 0) throw new Error(`Scheduler: row ${row} is free and holds blocks.`);
      } else {
        if (!withRow.has(sequence)) throw new Error(`Scheduler: row ${row} belongs to ${sequence.id}, which does not run.`);
        if (this.#kv.heldBlocks(row) < this.#kv.blocksFor(sequence.computedCount))
          throw new Error(`Scheduler: row ${row} holds fewer blocks than its sequence has computed.`);
      }
    }
    let sequenceCount = 0;
    for (const live of this.#requests.values()) {
      if (live.sequences.size === 0) throw new Error(`Scheduler: request ${live.request.id} has no sequence left.`);
      sequenceCount += live.sequences.size;
    }
    if (sequenceCount !== this.runningCount + this.#waiting.size) throw new Error('Scheduler: sequences are neither running nor waiting.');
    for (const [id, sequence] of this.#sequences) {
      if (!sequence.choiceIds.includes(id) || sequence.state === 'ended') throw new Error(`Scheduler: choice ${id} is not alive.`);
    }
    if (this.#flight === undefined && this.#kv.usage().protectedBlocks > 0) throw new Error('Scheduler: a hit was left locked.');
  }

  get #quietParts() {
    return { settings: this.#settings, kv: this.#kv, running: this.#running, waiting: this.#waiting };
  }

  // commit

  #commitPrefill(sequence: Sequence, chunk: ChunkEntry, step: { byId: Map<string, StepOutcome>; limited: string[] }): void {
    const before = Math.max(sequence.computedCount, sequence.chargedCount!);
    sequence.completeChunk(chunk.start + chunk.tokenIds.length);
    const paid = Math.min(sequence.computedCount, sequence.promptCount) - before;
    if (paid > 0) {
      sequence.chargedCount = before + paid;
      this.#waiting.charge(sequence, paid);
    }
    if (!chunk.sample || sequence.state === 'ended') return;
    const choiceIds = sequence.choiceIds;
    if (choiceIds.length === 1) {
      this.#accept(sequence, outcomeOf(step.byId, choiceIds[0]!), step.limited);
      return;
    }
    this.#split(sequence, step);
  }

  /** A shared prefill has ended: the first choice that goes on keeps the row, the others fork from it in the next plan. */
  #split(sequence: Sequence, step: { byId: Map<string, StepOutcome>; limited: string[] }): void {
    const [firstId, ...otherIds] = sequence.choiceIds as [string, ...string[]];
    const live = this.#requests.get(sequence.request.id)!;
    const forks: { sequence: Sequence; outcome: StepOutcome }[] = [];
    sequence.choiceIds = [firstId];
    for (const id of otherIds) {
      const fork = sequence.fork(id, this.#contextTokens);
      fork.state = 'running';
      live.sequences.add(fork);
      this.#sequences.set(id, fork);
      this.#waiting.join(fork);
      this.#rowPlanner.fork(fork, sequence);
      forks.push({ sequence: fork, outcome: outcomeOf(step.byId, id) });
    }
    this.#accept(sequence, outcomeOf(step.byId, firstId), step.limited);
    for (const fork of forks) this.#accept(fork.sequence, fork.outcome, step.limited);
  }

  #commitVerification(sequence: Sequence, chunk: ChunkEntry, step: { byId: Map<string, StepOutcome>; limited: string[] }): void {
    if (sequence.state === 'ended') {
      sequence.completeVerification(chunk.start + 1);
      return;
    }
    const outcome = outcomeOf(step.byId, sequence.id);
    if (outcome.tokenIds.length > chunk.logitCount)
      throw new Error(`${sequence.id} has ${outcome.tokenIds.length} tokens of ${chunk.logitCount} logits.`);
    // A draft's keys and values are good when it is the token that was sampled before it.
    let good = 0;
    while (good < outcome.tokenIds.length - 1 && chunk.tokenIds[good + 1] === outcome.tokenIds[good]) good += 1;
    sequence.completeVerification(chunk.start + 1 + good);
    this.#accept(sequence, outcome, step.limited);
  }

  #accept(sequence: Sequence, outcome: StepOutcome, limited: string[]): void {
    const room = sequence.knownLimit - sequence.knownCount;
    const tokenIds = outcome.tokenIds.length > room ? outcome.tokenIds.slice(0, room) : outcome.tokenIds;
    if (tokenIds.length === 0 && !outcome.finished) throw new Error(`${sequence.id} was sampled and has no token.`);
    sequence.append(tokenIds);
    this.#waiting.charge(sequence, tokenIds.length);
    if (outcome.finished) {
      this.#end(sequence);
    } else if (sequence.knownCount === sequence.knownLimit) {
      limited.push(sequence.id);
      this.#end(sequence);
    }
  }

  // coming and going

  /** Ends a sequence in whatever state; a row it has goes back in the next plan. */
  #end(sequence: Sequence): void {
    if (sequence.state === 'ended') return;
    if (sequence.state === 'waiting') {
      this.#waiting.remove(sequence);
    } else {
      this.#waiting.leave(sequence);
      this.#rowPlanner.end(sequence);
    }
    this.#forget(sequence);
  }

  #forget(sequence: Sequence): void {
    sequence.state = 'ended';
    for (const id of sequence.choiceIds) this.#sequences.delete(id);
    const live = this.#requests.get(sequence.request.id);
    live?.sequences.delete(sequence);
    if (live?.sequences.size === 0) this.#requests.delete(sequence.request.id);
  }
}

function outcomeOf(byId: Map<string, StepOutcome>, sequenceId: string): StepOutcome {
  const outcome = byId.get(sequenceId);
  if (outcome === undefined) throw new Error(`${sequenceId} was sampled and has no outcome.`);
  return outcome;
}
