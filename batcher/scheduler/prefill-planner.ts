/**
 * PrefillPlanner: who gets the prefill chunks of a step: running prefills, and those who are admitted for it.
 * Guarantee: a running prefill is overtaken at most `overtakeLimit` chunks in a row, and nobody is admitted without the blocks for all
 * that it knows.
 */
import type { KvCache } from '../kv/kv-cache.ts';
import { chunkSize } from './chunk-size.ts';
import type { PlanDraft } from './plan-draft.ts';
import { type RunningSet, rankOf } from './running-set.ts';
import type { SchedulerSettings } from './scheduler-settings.ts';
import type { Sequence } from './sequence.ts';
import type { WaitingQueue } from './waiting-queue.ts';

export interface PrefillPlannerParts {
  settings: SchedulerSettings;
  kv: KvCache;
  running: RunningSet;
  waiting: WaitingQueue;
  clock(): number;
  /** Tokens that a chunk from that position may have. */
  chunkTokensFrom(start: number): number;
  /** A waiting sequence turned out to be larger than the whole budget. */
  onExhausted(sequence: Sequence): void;
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

export class PrefillPlanner {
  readonly #settings: SchedulerSettings;
  readonly #kv: KvCache;
  readonly #running: RunningSet;
  readonly #waiting: WaitingQueue;
  readonly #clock: () => number;
  readonly #chunkTokensFrom: (start: number) => number;
  readonly #onExhausted: (sequence: Sequence) => void;
  #admissionCount = 0;
  /** Chunks in a row that the longest-running prefill was not given. */
  #overtakes = 0;

  constructor(parts: PrefillPlannerParts) {
    this.#settings = parts.settings;
    this.#kv = parts.kv;
    this.#running = parts.running;
    this.#waiting = parts.waiting;
    this.#clock = parts.clock;
    this.#chunkTokensFrom = parts.chunkTokensFrom;
    this.#onExhausted = parts.onExhausted;
  }

  /** The longest-running prefill has the first right to a chunk; others may overtake it `overtakeLimit` times in a row. */
  plan(draft: PlanDraft, limits: { chunkTokens: number; budgetTokens: number }): void {
    let budget = limits.budgetTokens;
    const prefilling: Sequence[] = [];
    for (const sequence of this.#running) {
      if (sequence.isPrefilling) prefilling.push(sequence);
    }
    if (prefilling.length > 1) prefilling.sort((a, b) => a.admissionOrder! - b.admissionOrder!);
    let slots = this.#settings.maxChunksPerStep;
    let mayAdmit = draft.preempted.length === 0 && draft.exhausted.length === 0;
    for (;;) {
      const allowed = slots > 0 ? Math.min(limits.chunkTokens, budget) : 0;
      const oldest = prefilling[0];
      const mayOvertake = oldest === undefined || this.#overtakes < this.#settings.overtakeLimit;
      let next: Sequence | undefined;
      if (oldest !== undefined && mayOvertake && slots > 0) next = this.#findOvertaker(prefilling, allowed);
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
      const size = chunkSize(next.prefillTarget - next.computedCount, this.#chunkLimit(next, allowed));
      if (size === 0) break;
      this.#addChunk(next, size, draft);
      budget -= size;
      slots -= 1;
    }
  }

  #addChunk(sequence: Sequence, size: number, draft: PlanDraft): void {
    const start = sequence.computedCount;
    const end = start + size;
    const isLast = end === sequence.knownCount;
    sequence.chunkEnd = end;
    draft.chunks.push({
      sequenceId: sequence.id,
      row: -1,
      start,
      tokenIds: sequence.tokenIds.slice(start, end),
      purpose: 'prefill',
      logitCount: sequence.isScoring ? size : isLast ? 1 : 0,
      sample: isLast,
      choiceIds: sequence.choiceIds,
    });
    draft.chunkSequences.push(sequence);
  }

  /** Of a chunk from where the sequence stands. */
  #chunkLimit(sequence: Sequence, allowed: number): number {
    const limit = Math.min(allowed, this.#chunkTokensFrom(sequence.computedCount));
    return sequence.isScoring ? Math.min(limit, this.#settings.scoringChunkTokens) : limit;
  }

  /**
   * Admits the head of the waiting, if it may run now: 'none' when it may not. The head is never passed over for one that would fit:
   * it would wait for ever.
   */
  #admit(draft: PlanDraft, step: ChunkChance): Sequence | 'none' {
    const now = this.#clock();
    const head = this.#waiting.head(now);
    if (head === undefined) return 'none';
    const isAlone = this.#running.count === 0;
    if (!isAlone && this.#running.claimedRowCount + head.choiceIds.length > this.#settings.maxRunning) return 'none';
    const row = this.#running.rows.lowestFree();
    if (row === undefined) return 'none';
    const { budgetBlocks, blockTokens } = this.#kv.shape;
    if (this.#kv.blocksFor(head.knownCount) > budgetBlocks) {
      // Resumed from a batcher with a larger budget.
      this.#waiting.remove(head);
      draft.exhausted.push(...head.choiceIds);
      this.#onExhausted(head);
      return 'none';
    }
    const wanted = Math.min(this.#kv.blocksFor(head.knownCount + 1), budgetBlocks);
    const watermark = isAlone ? 0 : Math.ceil(this.#settings.admissionWatermark * budgetBlocks);
    if (wanted + watermark > this.#kv.roomBlocks) return 'none';
    // Without a look at the store, for the common case: nothing has been generated, so that two tokens at least are to be prefilled.
    if (head.generatedCount === 0 && !this.#mayTakeChunk(head, 1, step)) return 'none';
    head.space ??= this.#kv.space(head.request.tenant, head.request.promptTokenIds);
    const blockLimit = head.isScoring ? 0 : budgetBlocks;
    const found = this.#kv.match({ space: head.space, tokenIds: head.tokenIds, blockLimit, demand: head.demand });
    head.start(found.blockIds.length * blockTokens, found.prefilledTokens);
    const toPrefill = head.prefillTarget - head.computedCount;
    const mustYield = !this.#mayTakeChunk(head, toPrefill, step) || this.#isBeingPrefilled(head, found.blockIds.length, step.allowed);
    if (toPrefill > 0 && mustYield) {
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
    head.start(handle.blockIds.length * blockTokens, handle.prefilledTokens);
    head.chargedCount ??= Math.min(head.computedCount, head.promptCount);
    const usedBlocks = this.#kv.blocksFor(head.computedCount);
    if (usedBlocks > 0) draft.loads.push({ row, firstBlock: 0, blockIds: handle.blockIds.slice(0, usedBlocks) });
    if (!isResumed && !head.isScoring) this.#kv.countUse(head.promptCount, Math.min(head.computedCount, head.promptCount));
    draft.admitted.push({ sequenceId: head.id, cachedTokens: head.computedCount, resumed: isResumed });
    this.#running.add(head, row);
    return head;
  }

  /** Whether a newcomer with this much to prefill may have the next chunk, a running prefill or none before it. */
  #mayTakeChunk(head: Sequence, toPrefill: number, step: ChunkChance): boolean {
    if (step.isClosed || step.allowed < 2) return false;
    const { oldest } = step;
    if (oldest === undefined) return true;
    if (rankOf(head) < rankOf(oldest) || head.admissionOrder !== undefined) return true;
    return (
      toPrefill <= this.#chunkLimit(head, step.allowed) &&
      oldest.prefillTarget - oldest.computedCount > this.#chunkLimit(oldest, step.allowed)
    );
  }

  /** Another prefill is about to end that has more of the same prefix: a step later it can be had from the store. */
  #isBeingPrefilled(head: Sequence, foundBlocks: number, allowed: number): boolean {
    const wanted = (foundBlocks + 1) * this.#kv.shape.blockTokens;
    if (head.isScoring || head.knownCount < wanted + 2) return false;
    for (const other of this.#running) {
      if (!other.isPrefilling || other.prefillTarget - other.computedCount > this.#chunkLimit(other, allowed)) continue;
      if (other.request.tenant !== head.request.tenant || other.prefillTarget < wanted) continue;
      let same = 0;
      while (same < wanted && other.tokenIds[same] === head.tokenIds[same]) same += 1;
      if (same === wanted) return true;
    }
    return false;
  }

  /** A running prefill that may have its chunk before the oldest: of a higher class, or done with it while the oldest is not. */
  #findOvertaker(prefilling: readonly Sequence[], allowed: number): Sequence | undefined {
    const oldest = prefilling[0]!;
    const isLong = oldest.prefillTarget - oldest.computedCount > this.#chunkLimit(oldest, allowed);
    let best: Sequence | undefined;
    for (const sequence of prefilling) {
      if (sequence === oldest) continue;
      const isShort = isLong && sequence.prefillTarget - sequence.computedCount <= this.#chunkLimit(sequence, allowed);
      if (rankOf(sequence) > rankOf(oldest) || !(isShort || rankOf(sequence) < rankOf(oldest))) continue;
      if (best === undefined || rankOf(sequence) < rankOf(best)) best = sequence;
    }
    return best;
  }
}
