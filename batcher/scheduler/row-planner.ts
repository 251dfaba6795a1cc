/**
 * RowPlanner: which sequences lose, share, get and keep rows in a step, before anything of it is computed: those that ended give theirs back, forks
 * get one, and what runs gets the blocks for its next token, or others are preempted for it.
 * Guarantee: whoever has a row after a plan has the blocks for its next token; nobody is preempted for one of less right.
 */
import type { KvCache } from '../kv/kv-cache.ts';
import type { PlanDraft } from './plan-draft.ts';
import type { RowMemory } from './row-memory.ts';
import type { RunningSet } from './running-set.ts';
import type { Sequence } from './sequence.ts';
import type { WaitingQueue } from './waiting-queue.ts';

export interface RowPlannerParts {
  kv: KvCache;
  running: RunningSet;
  waiting: WaitingQueue;
  rowMemory: RowMemory;
  clock(): number;
  /** A sequence that lost its row turned out to be larger than the whole budget. */
  onExhausted(sequence: Sequence): void;
}

export class RowPlanner {
  readonly #kv: KvCache;
  readonly #running: RunningSet;
  readonly #waiting: WaitingQueue;
  readonly #rowMemory: RowMemory;
  readonly #clock: () => number;
  readonly #onExhausted: (sequence: Sequence) => void;
  /** Choices that sampled their first token from a shared prefill and need a row of their own, and whose row to copy. */
  #forks: { sequence: Sequence; source: Sequence }[] = [];
  /** Ended sequences that still have a row. */
  readonly #retiring: Sequence[] = [];
  #preemptionCount = 0;

  constructor(parts: RowPlannerParts) {
    this.#kv = parts.kv;
    this.#running = parts.running;
    this.#waiting = parts.waiting;
    this.#rowMemory = parts.rowMemory;
    this.#clock = parts.clock;
    this.#onExhausted = parts.onExhausted;
  }

  /** Sequences that are to get a row from a shared prefill. */
  get forkCount(): number {
    return this.#forks.length;
  }

  get retiring(): Iterable<Sequence> {
    return this.#retiring;
  }

  /** No row is to change hands. */
  get isIdle(): boolean {
    return this.#forks.length + this.#retiring.length === 0;
  }

  get preemptionCount(): number {
    return this.#preemptionCount;
  }

  /** A choice needs a row of its own, a copy of `source`'s, in the next plan. */
  fork(sequence: Sequence, source: Sequence): void {
    this.#forks.push({ sequence, source });
  }

  /** It ended, running or a fork; a row it has goes back in the next plan. */
  end(sequence: Sequence): void {
    if (this.#running.retire(sequence)) this.#retiring.push(sequence);
    else this.#forks = this.#forks.filter(fork => fork.sequence !== sequence);
  }

  plan(draft: PlanDraft): void {
    this.#inheritRows();
    this.#retire(draft);
    this.#placeForks(draft);
    this.#sharePrefills(draft);
    this.#grow(draft);
  }

  /** A choice that ended with its first token leaves its row, as it is, to the first fork of it. */
  #inheritRows(): void {
    for (const { sequence, source } of this.#forks) {
      const { row } = source;
      if (source.state !== 'ended' || row === undefined) continue;
      this.#running.rows.vacate(source);
      source.heir = sequence;
      sequence.hasUnsavedPrefill = true;
      this.#running.add(sequence, row);
    }
    if (this.#forks.length > 0) this.#forks = this.#forks.filter(fork => fork.sequence.row === undefined);
  }

  /** A fork without room waits like a preempted sequence. */
  #placeForks(draft: PlanDraft): void {
    if (this.#forks.length === 0) return;
    const forks = this.#forks;
    this.#forks = [];
    for (const { sequence, source } of forks) {
      const from = (source.heir ?? source).row;
      if (from === undefined) throw new Error(`The row that ${sequence.id} forks from is gone.`);
      const to = this.#running.rows.lowestFree();
      if (to !== undefined && this.#kv.growRow(to, this.#kv.blocksFor(sequence.knownCount + 1))) {
        this.#running.add(sequence, to);
        this.#rowMemory.copy({ from, to, tokens: sequence.computedCount }, draft);
        draft.arriving.add(sequence);
      } else {
        this.#waitAgain(sequence, draft);
      }
    }
  }

  #retire(draft: PlanDraft): void {
    for (const sequence of this.#retiring) {
      if (sequence.row === undefined) continue;
      const row = this.#running.rows.vacate(sequence);
      this.#kv.freeRow(row);
      this.#save(sequence, row, draft);
    }
    this.#retiring.length = 0;
  }

  #sharePrefills(draft: PlanDraft): void {
    for (const sequence of this.#running) {
      if (!sequence.hasUnsavedPrefill) continue;
      sequence.hasUnsavedPrefill = false;
      if (!draft.arriving.has(sequence)) this.#save(sequence, sequence.row!, draft);
    }
  }

  #save(sequence: Sequence, row: number, draft: PlanDraft): void {
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

  #grow(draft: PlanDraft): void {
    for (const sequence of this.#running) {
      const wanted = this.#kv.blocksFor(sequence.computedCount + 1);
      while (sequence.state === 'running' && !this.#kv.growRow(sequence.row!, wanted)) this.#preempt(this.#running.last!, draft);
    }
  }

  #preempt(victim: Sequence, draft: PlanDraft): void {
    this.#running.retire(victim);
    const row = this.#running.rows.vacate(victim);
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
  #waitAgain(sequence: Sequence, draft: PlanDraft): void {
    this.#waiting.leave(sequence);
    if (this.#kv.blocksFor(sequence.knownCount) > this.#kv.shape.budgetBlocks) {
      draft.exhausted.push(...sequence.choiceIds);
      this.#onExhausted(sequence);
      return;
    }
    this.#preemptionCount += 1;
    draft.preempted.push(sequence.id);
    sequence.restart();
    sequence.state = 'waiting';
    this.#waiting.pushPreempted(sequence, this.#clock());
  }
}
