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

import { SERVICE_CLASSES } from '../../shared/job.ts';
import type { BlockCopy } from '../engine/engine.ts';
import type { KvCache, KvUsage, PrefixHandle } from '../kv/kv-cache.ts';
import { chunkSize } from './chunk-size.ts';
import { RowMap } from './row-map.ts';
import type { SchedulerSettings } from './scheduler-settings.ts';
import { Sequence } from './sequence.ts';
import { RequestRefused, resumedTokens, type SequenceRequest, validateRequest } from './sequence-request.ts';
import type { Admission, ChunkEntry, DecodeEntry, StepOutcome, StepPlan } from './step-plan.ts';
import { type TenantService, WaitingQueue } from './waiting-queue.ts';

export interface SchedulerParts {
  settings: SchedulerSettings;
  kv: KvCache;
  /** Tokens that one row of the KV cache can hold. */
  contextTokens: number;
  /** Milliseconds; deadlines and arrivals are by it. */
  clock(): number;
}

/** A plan while it is made and while it runs. */
interface Draft {
  plan: { -readonly [Part in keyof StepPlan]: StepPlan[Part] };
  preempted: string[];
  admitted: Admission[];
  exhausted: string[];
  saves: BlockCopy[];
  copies: { from: number; to: number; tokens: number }[];
  loads: BlockCopy[];
  releases: { row: number; fromToken: number }[];
  chunks: ChunkEntry[];
  decode: DecodeEntry[];
  /** Hits that the loads read; unlocked by commit. */
  locked: PrefixHandle[];
  /** The sequences of chunks and decode, entry by entry; undefined for a filler. */
  chunkSequences: Sequence[];
  decodeSequences: (Sequence | undefined)[];
  /** Sequences whose row gets its content only by a copy of this plan: there is nothing to save from it yet. */
  arriving: Set<Sequence>;
}

/** What stands between a newcomer and the next chunk. */
interface ChunkChance {
  /** Tokens that the chunk may have; 0 when the step has no chunk left. */
  allowed: number;
  /** The longest-running prefill that has no chunk in this step yet. */
  oldest: Sequence | undefined;
  /** It has been overtaken often enough. */
  isClosed: boolean;
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
  readonly #rows: RowMap;
  /** Sequences with a row, highest class and first admitted first: the last is the next victim. */
  #running: Sequence[] = [];
  /** Choices that sampled their first token from a shared prefill and need a row of their own, and whose row to copy. */
  #forks: { sequence: Sequence; source: Sequence }[] = [];
  /** Ended sequences that still have a row. */
  #retiring: Sequence[] = [];
  /** By choice. */
  readonly #sequences = new Map<string, Sequence>();
  readonly #requests = new Map<string, Live>();
  /** Blocks of a row whose memory may have been touched since its last release. */
  readonly #touched: Int32Array;
  #flight: Draft | undefined;
  #step = 0;
  #admissionCount = 0;
  #preemptionCount = 0;
  #overtakes = 0;
  #chunkTokens: number;

  constructor(parts: SchedulerParts) {
    const { settings, kv } = parts;
    if (settings.maxRunning > kv.shape.rowCount)
      throw new RangeError(`maxRunning (${settings.maxRunning}) must not exceed the ${kv.shape.rowCount} rows of the KV cache.`);
    this.#settings = settings;
    this.#kv = kv;
    this.#contextTokens = parts.contextTokens;
    this.#clock = parts.clock;
    this.#waiting = new WaitingQueue(settings);
    this.#rows = new RowMap(settings.maxRunning);
    this.#touched = new Int32Array(settings.maxRunning);
    this.#chunkTokens = Math.min(settings.chunkTokens, settings.maxBatchedTokens);
  }

  /** Sequences with a row, or about to get one from a shared prefill. */
  get runningCount(): number {
    return this.#running.length + this.#forks.length;
  }

  /** Sequences without a row; choices that share a prefill count once. */
  get waitingCount(): number {
    return this.#waiting.size;
  }

  get waitingTokens(): number {
    return this.#waiting.waitingTokens;
  }

  get preemptionCount(): number {
    return this.#preemptionCount;
  }

  /** Rows that could take a sequence in the next step, as far as rows are concerned. */
  get freeRowCount(): number {
    return Math.max(0, this.#settings.maxRunning - this.#claimedRows());
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

  /** Whether the choice was accepted and has not ended. */
  has(sequenceId: string): boolean {
    return this.#sequences.has(sequenceId);
  }

  /** Bounds the next chunks; the loop sizes it from the wanted inter-token latency and the measured rate. */
  setChunkTokens(tokens: number): void {
    if (Number.isNaN(tokens)) throw new RangeError('A chunk must have a number of tokens.');
    this.#chunkTokens = Math.max(4, Math.min(Math.floor(tokens), this.#settings.maxBatchedTokens));
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
    if (this.#running.length + this.#forks.length + this.#retiring.length + this.#waiting.size === 0) return undefined;
    const draft = makeDraft(this.#step + 1);
    this.#placeForks(draft);
    this.#retire(draft);
    this.#sharePrefills(draft);
    this.#grow(draft);
    const verifyingCount = this.#takeDrafts(draft);
    const length = this.#pack(draft);
    this.#prefill(draft, verifyingCount);
    this.#decode(draft, length);
    this.#release(draft);
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

  /**
   * After the engine failed as a whole: nothing in its memory is trusted any more. All running sequences end, what waits stays.
   * Returns the choices that ended.
   */
  abandon(): readonly string[] {
    this.#flight = undefined;
    const ended: string[] = [];
    for (const sequence of [...this.#running, ...this.#forks.map(fork => fork.sequence)]) {
      ended.push(...sequence.choiceIds);
      this.#end(sequence);
    }
    for (const sequence of this.#retiring) {
      if (sequence.row !== undefined) this.#rows.vacate(sequence);
    }
    this.#retiring = [];
    this.#forks = [];
    this.#kv.clear();
    return ended;
  }

  /** Throws when an invariant is broken. Walks everything. */
  check(): void {
    this.#kv.check();
    this.#waiting.check();
    this.#rows.check();
    const withRow = new Set([...this.#running, ...this.#retiring]);
    for (let row = 0; row < this.#rows.rowCount; row += 1) {
      const sequence = this.#rows.at(row);
      if (sequence === undefined) {
        if (this.#kv.heldBlocks(row) !== 0) throw new Error(`Scheduler: row ${row} is free and holds blocks.`);
      } else {
        if (!withRow.has(sequence)) throw new Error(`Scheduler: row ${row} belongs to ${sequence.id}, which does not run.`);
        if (this.#kv.heldBlocks(row) < this.#kv.blocksFor(sequence.computedCount))
          throw new Error(`Scheduler: row ${row} holds fewer blocks than its sequence has computed.`);
      }
    }
    for (let i = 0; i < this.#running.length; i += 1) {
      const sequence = this.#running[i]!;
      if (sequence.row === undefined || sequence.state !== 'running') throw new Error(`Scheduler: ${sequence.id} runs without a row.`);
      if (sequence.uncomputedCount < 1) throw new Error(`Scheduler: ${sequence.id} has nothing left to compute.`);
      if (i > 0 && !isBefore(this.#running[i - 1]!, sequence)) throw new Error('Scheduler: running sequences are out of order.');
    }
    let sequenceCount = 0;
    for (const live of this.#requests.values()) {
      if (live.sequences.size === 0) throw new Error(`Scheduler: request ${live.request.id} has no sequence left.`);
      sequenceCount += live.sequences.size;
    }
    if (sequenceCount !== this.#running.length + this.#forks.length + this.#waiting.size)
      throw new Error('Scheduler: sequences are neither running nor waiting.');
    for (const [id, sequence] of this.#sequences) {
      if (!sequence.choiceIds.includes(id) || sequence.state === 'ended') throw new Error(`Scheduler: choice ${id} is not alive.`);
    }
    if (this.#flight === undefined && this.#kv.usage().protectedBlocks > 0) throw new Error('Scheduler: a hit was left locked.');
  }

  // 1 and 2: what ended, what forked, what finished its prefill

  /** Forks get rows before any row is given up, because they copy from one. A fork without room waits like a preempted sequence. */
  #placeForks(draft: Draft): void {
    if (this.#forks.length === 0) return;
    const forks = this.#forks;
    this.#forks = [];
    for (const { sequence, source } of forks) {
      if (sequence.state === 'ended') continue;
      let holder = source;
      while (holder.row === undefined && holder.heir !== undefined) holder = holder.heir;
      const { row } = holder;
      if (row === undefined) throw new Error(`The row that ${sequence.id} forks from is gone.`);
      if (holder.state === 'ended') {
        // Its row would be given up now: the fork takes it as it is.
        this.#rows.vacate(holder);
        holder.heir = sequence;
        this.#rows.place(sequence, row);
        sequence.hasUnsavedPrefill = true;
        this.#run(sequence);
        continue;
      }
      const free = this.#rows.lowestFree();
      if (free !== undefined && this.#kv.growRow(free, this.#kv.blocksFor(sequence.knownCount + 1))) {
        this.#rows.place(sequence, free);
        this.#run(sequence);
        draft.copies.push({ from: row, to: free, tokens: sequence.computedCount });
        draft.arriving.add(sequence);
      } else {
        this.#waitAgain(sequence, draft);
      }
    }
  }

  #retire(draft: Draft): void {
    for (const sequence of this.#retiring) {
      if (sequence.row === undefined) continue;
      const row = this.#rows.vacate(sequence);
      this.#kv.freeRow(row);
      this.#save(sequence, row, draft);
    }
    this.#retiring.length = 0;
  }

  #sharePrefills(draft: Draft): void {
    for (const sequence of this.#running) {
      if (!sequence.hasUnsavedPrefill) continue;
      sequence.hasUnsavedPrefill = false;
      if (!draft.arriving.has(sequence)) this.#save(sequence, sequence.row!, draft);
    }
  }

  #save(sequence: Sequence, row: number, draft: Draft): void {
    this.#kv.save(
      {
        owner: sequence.request.id,
        space: sequence.space!,
        tokenIds: sequence.tokenIds,
        row,
        tokenCount: sequence.computedCount,
        prefilledTokens: sequence.prefilledCount,
        tailOrigin: sequence.tailOrigin,
      },
      draft.saves,
    );
  }

  // 3: room for the next tokens

  #grow(draft: Draft): void {
    for (let i = 0; i < this.#running.length; i += 1) {
      const sequence = this.#running[i]!;
      const wanted = this.#kv.blocksFor(sequence.computedCount + 1);
      while (sequence.state === 'running' && !this.#kv.growRow(sequence.row!, wanted)) this.#preempt(this.#running.at(-1)!, draft);
    }
  }

  #preempt(victim: Sequence, draft: Draft): void {
    this.#running.pop();
    const row = this.#rows.vacate(victim);
    this.#kv.freeRow(row);
    if (draft.arriving.has(victim)) {
      const copy = draft.copies.findIndex(each => each.to === row);
      draft.copies.splice(copy, 1);
    } else {
      this.#save(victim, row, draft);
    }
    this.#waitAgain(victim, draft);
  }

  /** Loses its place among the running; ends instead when the whole budget could not hold it and its next token. */
  #waitAgain(sequence: Sequence, draft: Draft): void {
    this.#waiting.leave(sequence);
    if (this.#kv.blocksFor(sequence.knownCount) > this.#kv.shape.budgetBlocks) {
      draft.exhausted.push(...sequence.choiceIds);
      this.#forget(sequence);
      return;
    }
    this.#preemptionCount += 1;
    draft.preempted.push(sequence.id);
    sequence.restart();
    sequence.state = 'waiting';
    this.#waiting.pushPreempted(sequence, this.#clock());
  }

  /** Puts drafts into chunks while the batch is small and room is free; returns the tokens that they cost. */
  #takeDrafts(draft: Draft): number {
    let tokens = 0;
    let decodingCount = 0;
    for (const sequence of this.#running) if (!sequence.isPrefilling) decodingCount += 1;
    for (const sequence of this.#running) {
      const { drafts } = sequence;
      if (drafts.length === 0) continue;
      sequence.drafts = [];
      if (sequence.isPrefilling || sequence.uncomputedCount !== 1 || decodingCount > this.#settings.speculationMaxRunning) continue;
      // The last token that may be generated is sampled, never drafted.
      const room = sequence.knownLimit - sequence.knownCount - 1;
      const budget = this.#settings.maxBatchedTokens - decodingCount - tokens;
      const count = Math.min(drafts.length, this.#settings.maxDraftTokens, room, budget);
      // One position more, for the filler that may stand behind the drafts.
      if (count < 1 || !this.#kv.growRow(sequence.row!, this.#kv.blocksFor(sequence.knownCount + count + 1))) continue;
      const start = sequence.computedCount;
      sequence.chunkEnd = start + count + 1;
      tokens += count;
      draft.chunks.push({
        sequenceId: sequence.id,
        // Set when all rows are in place.
        row: -1,
        start,
        tokenIds: [sequence.tokenIds[start]!, ...drafts.slice(0, count)],
        logitCount: count + 1,
        choiceIds: [sequence.id],
      });
      draft.chunkSequences.push(sequence);
    }
    return tokens;
  }

  // 4: rows

  #pack(draft: Draft): number {
    let decodingCount = 0;
    for (const sequence of this.#running) if (decodes(sequence)) decodingCount += 1;
    return this.#rows.pack(decodes, decodingCount, {
      // A verification goes on to decode in the next step; a prefill blocks a row for as long as it takes.
      fillerCost: sequence =>
        sequence.isPrefilling
          ? Math.ceil((sequence.prefillTarget - sequence.computedCount) / this.#chunkTokens) * this.#settings.fillerCostTokens
          : 0,
      onMove: copy => {
        this.#kv.moveRow(copy.from, copy.to);
        draft.copies.push(copy);
      },
    });
  }

  // 5: prefill and admission

  /** The longest-running prefill has the first right to a chunk; others may overtake it `overtakeLimit` times in a row. */
  #prefill(draft: Draft, verifyingTokens: number): void {
    let budget = this.#settings.maxBatchedTokens - verifyingTokens;
    const prefilling: Sequence[] = [];
    for (const sequence of this.#running) {
      if (sequence.isPrefilling) prefilling.push(sequence);
      else budget -= 1;
    }
    if (prefilling.length > 1) prefilling.sort((a, b) => a.admissionOrder! - b.admissionOrder!);
    let slots = this.#settings.maxChunksPerStep;
    let mayAdmit = draft.preempted.length === 0 && draft.exhausted.length === 0;
    for (;;) {
      const allowed = slots > 0 ? Math.min(this.#chunkTokens, budget) : 0;
      const oldest = prefilling[0];
      const mayOvertake = oldest === undefined || this.#overtakes < this.#settings.overtakeLimit;
      let next: Sequence | undefined;
      if (oldest !== undefined && mayOvertake && slots > 0) next = findOvertaker(prefilling, allowed);
      if (next === undefined && mayAdmit) {
        const admitted = this.#admit(draft, { allowed, oldest, isClosed: !mayOvertake });
        if (admitted === 'none') mayAdmit = false;
        else if (!admitted.isPrefilling) {
          budget -= 1;
          continue;
        } else next = admitted;
      }
      if (slots === 0) break;
      next ??= oldest;
      if (next === undefined) break;
      if (oldest !== undefined && next !== oldest) this.#overtakes += 1;
      else this.#overtakes = 0;
      const place = prefilling.indexOf(next);
      if (place >= 0) prefilling.splice(place, 1);
      const size = chunkSize(next.prefillTarget - next.computedCount, allowed);
      if (size === 0) break;
      this.#addChunk(next, size, draft);
      budget -= size;
      slots -= 1;
    }
  }

  #addChunk(sequence: Sequence, size: number, draft: Draft): void {
    const start = sequence.computedCount;
    const end = start + size;
    sequence.chunkEnd = end;
    draft.chunks.push({
      sequenceId: sequence.id,
      row: -1,
      start,
      tokenIds: sequence.tokenIds.slice(start, end),
      logitCount: end === sequence.knownCount ? 1 : 0,
      choiceIds: sequence.choiceIds,
    });
    draft.chunkSequences.push(sequence);
  }

  /**
   * Admits the head of the waiting, if it may run now: 'none' when it may not. The head is never passed over for one that would fit:
   * it would wait for ever.
   */
  #admit(draft: Draft, step: ChunkChance): Sequence | 'none' {
    const now = this.#clock();
    const head = this.#waiting.head(now);
    if (head === undefined) return 'none';
    const isAlone = this.#running.length === 0;
    if (!isAlone && this.#claimedRows() + head.choiceIds.length > this.#settings.maxRunning) return 'none';
    const row = this.#rows.lowestFree();
    if (row === undefined) return 'none';
    const { budgetBlocks, blockTokens } = this.#kv.shape;
    if (this.#kv.blocksFor(head.knownCount) > budgetBlocks) {
      // Resumed from a batcher with a larger budget.
      this.#waiting.remove(head);
      draft.exhausted.push(...head.choiceIds);
      this.#forget(head);
      return 'none';
    }
    const wanted = Math.min(this.#kv.blocksFor(head.knownCount + 1), budgetBlocks);
    const watermark = isAlone ? 0 : Math.ceil(this.#settings.admissionWatermark * budgetBlocks);
    if (wanted + watermark > this.#kv.roomBlocks) return 'none';
    // Without a look at the store, for the common case: nothing has been generated, so that two tokens at least are to be prefilled.
    if (head.generatedCount === 0 && !this.#mayTakeChunk(head, 1, step)) return 'none';
    head.space ??= this.#kv.space(head.request.tenant, head.request.promptTokenIds);
    const found = this.#kv.match({ space: head.space, tokenIds: head.tokenIds, blockLimit: budgetBlocks, demand: head.demand });
    head.start(found.blockIds.length * blockTokens, found.prefilledTokens);
    const toPrefill = head.prefillTarget - head.computedCount;
    if (
      (toPrefill > 0 && !this.#mayTakeChunk(head, toPrefill, step)) ||
      this.#isBeingPrefilled(head, found.blockIds.length, step.allowed)
    ) {
      head.restart();
      return 'none';
    }
    // Locked blocks cannot make room: as many are used as fit beside the row, looked at again now that it counts.
    const handle = this.#kv.shorten(found, this.#kv.roomBlocks - wanted);
    this.#kv.lock(handle);
    draft.locked.push(handle);
    if (!this.#kv.growRow(row, wanted)) throw new Error(`Row ${row} was promised ${wanted} blocks.`);
    const isResumed = head.admissionOrder !== undefined;
    if (head.admissionOrder === undefined) {
      this.#admissionCount += 1;
      head.admissionOrder = this.#admissionCount;
    }
    this.#waiting.admit(head);
    this.#rows.place(head, row);
    head.start(handle.blockIds.length * blockTokens, handle.prefilledTokens);
    head.chargedCount ??= Math.min(head.computedCount, head.promptCount);
    const usedBlocks = this.#kv.blocksFor(head.computedCount);
    if (usedBlocks > 0) draft.loads.push({ row, firstBlock: 0, blockIds: handle.blockIds.slice(0, usedBlocks) });
    if (!isResumed) this.#kv.countUse(head.promptCount, Math.min(head.computedCount, head.promptCount));
    draft.admitted.push({ sequenceId: head.id, cachedTokens: head.computedCount, resumed: isResumed });
    this.#run(head);
    return head;
  }

  /** Whether a newcomer with this much to prefill may have the next chunk, a running prefill or none before it. */
  #mayTakeChunk(head: Sequence, toPrefill: number, step: ChunkChance): boolean {
    if (step.isClosed || step.allowed < 2) return false;
    const { oldest } = step;
    if (oldest === undefined) return true;
    if (rankOf(head) < rankOf(oldest) || head.admissionOrder !== undefined) return true;
    return toPrefill <= step.allowed && oldest.prefillTarget - oldest.computedCount > step.allowed;
  }

  /** Another prefill is about to end that has more of the same prefix: a step later it can be had from the store. */
  #isBeingPrefilled(head: Sequence, foundBlocks: number, allowed: number): boolean {
    const wanted = (foundBlocks + 1) * this.#kv.shape.blockTokens;
    if (head.knownCount < wanted + 2) return false;
    for (const other of this.#running) {
      if (!other.isPrefilling || other.prefillTarget - other.computedCount > allowed) continue;
      if (other.request.tenant !== head.request.tenant || other.prefillTarget < wanted) continue;
      let same = 0;
      while (same < wanted && other.tokenIds[same] === head.tokenIds[same]) same += 1;
      if (same === wanted) return true;
    }
    return false;
  }

  // 6: the decode batch

  #decode(draft: Draft, packedLength: number): void {
    const { decode, decodeSequences } = draft;
    let length = packedLength;
    let isReproducible = false;
    for (const sequence of this.#running) {
      if (!decodes(sequence)) continue;
      length = Math.max(length, sequence.row! + 1);
      isReproducible ||= sequence.request.reproducible;
    }
    // The engine may pad a batch to so many rows; a row that is in use there gets an entry, so that it is not overwritten.
    if (isReproducible) while (length < Math.min(this.#settings.minDecodeRows, this.#rows.rowCount) && this.#rows.at(length)) length += 1;
    for (let row = 0; row < length; row += 1) {
      const sequence = this.#rows.at(row);
      if (sequence === undefined) throw new Error(`Row ${row} of the decode batch is empty.`);
      const isDecoding = decodes(sequence);
      const position = isDecoding ? sequence.computedCount : (sequence.chunkEnd ?? sequence.computedCount);
      decode.push({
        sequenceId: sequence.id,
        tokenId: sequence.tokenIds[Math.min(position, sequence.knownCount - 1)]!,
        position,
        sample: isDecoding && position === sequence.knownCount - 1,
        reproducible: isDecoding && sequence.request.reproducible,
      });
      decodeSequences.push(isDecoding ? sequence : undefined);
    }
    for (let i = 0; i < draft.chunks.length; i += 1) {
      const sequence = draft.chunkSequences[i]!;
      draft.chunks[i]!.row = sequence.row!;
      sequence.chunkEnd = undefined;
    }
  }

  #release(draft: Draft): void {
    for (let row = 0; row < this.#touched.length; row += 1) {
      const held = this.#kv.heldBlocks(row);
      if (this.#touched[row]! > held) draft.releases.push({ row, fromToken: held * this.#kv.shape.blockTokens });
      this.#touched[row] = held;
    }
    const evicted = this.#kv.takeEvicted();
    if (evicted.length > 0) draft.plan.releasedBlocks = evicted;
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
    if (chunk.logitCount === 0 || sequence.state === 'ended') return;
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
      this.#forks.push({ sequence: fork, source: sequence });
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

  #run(sequence: Sequence): void {
    sequence.state = 'running';
    let place = this.#running.length;
    while (place > 0 && isBefore(sequence, this.#running[place - 1]!)) place -= 1;
    this.#running.splice(place, 0, sequence);
  }

  /** Ends a sequence in whatever state; a row it has goes back in the next plan. */
  #end(sequence: Sequence): void {
    if (sequence.state === 'ended') return;
    if (sequence.state === 'waiting') {
      this.#waiting.remove(sequence);
    } else {
      this.#waiting.leave(sequence);
      const place = this.#running.indexOf(sequence);
      if (place >= 0) {
        this.#running.splice(place, 1);
        this.#retiring.push(sequence);
      } else {
        this.#forks = this.#forks.filter(fork => fork.sequence !== sequence);
      }
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

  /** Rows in use or promised to choices that still share a prefill. */
  #claimedRows(): number {
    let rows = this.#forks.length;
    for (const sequence of this.#running) rows += sequence.choiceIds.length;
    return rows;
  }
}

function rankOf(sequence: Sequence): number {
  return SERVICE_CLASSES.indexOf(sequence.request.serviceClass);
}

/** Whether `a` is preempted later than `b`. */
function isBefore(a: Sequence, b: Sequence): boolean {
  const ranks = rankOf(a) - rankOf(b);
  if (ranks !== 0) return ranks < 0;
  // Forks share their admission.
  return a.admissionOrder! <= b.admissionOrder!;
}

/** Goes into the decode batch of the plan being made. */
function decodes(sequence: Sequence): boolean {
  return !sequence.isPrefilling && sequence.chunkEnd === undefined;
}

/** A running prefill that may have its chunk before the oldest: of a higher class, or done with it while the oldest is not. */
function findOvertaker(prefilling: readonly Sequence[], allowed: number): Sequence | undefined {
  const oldest = prefilling[0]!;
  const isLong = oldest.prefillTarget - oldest.computedCount > allowed;
  let best: Sequence | undefined;
  for (const sequence of prefilling) {
    if (sequence === oldest) continue;
    const isShort = isLong && sequence.prefillTarget - sequence.computedCount <= allowed;
    if (rankOf(sequence) > rankOf(oldest) || !(isShort || rankOf(sequence) < rankOf(oldest))) continue;
    if (best === undefined || rankOf(sequence) < rankOf(best)) best = sequence;
  }
  return best;
}

function outcomeOf(byId: Map<string, StepOutcome>, sequenceId: string): StepOutcome {
  const outcome = byId.get(sequenceId);
  if (outcome === undefined) throw new Error(`${sequenceId} was sampled and has no outcome.`);
  return outcome;
}

function makeDraft(step: number): Draft {
  const parts = {
    preempted: [] as string[],
    admitted: [] as Admission[],
    exhausted: [] as string[],
    saves: [] as BlockCopy[],
    copies: [] as { from: number; to: number; tokens: number }[],
    loads: [] as BlockCopy[],
    releases: [] as { row: number; fromToken: number }[],
    chunks: [] as ChunkEntry[],
    decode: [] as DecodeEntry[],
  };
  return {
    ...parts,
    plan: { step, ...parts, releasedBlocks: [] },
    locked: [],
    chunkSequences: [],
    decodeSequences: [],
    arriving: new Set(),
  };
}

/** Nothing to run and nothing to tell. */
function isEmpty(plan: StepPlan): boolean {
  return (
    plan.chunks.length === 0 &&
    plan.decode.length === 0 &&
    plan.saves.length === 0 &&
    plan.copies.length === 0 &&
    plan.releases.length === 0 &&
    plan.releasedBlocks.length === 0 &&
    plan.preempted.length === 0 &&
    plan.exhausted.length === 0
  );
}
