/**
 * DecodePlanner: the decode batch of a step, the rows that it needs, and the drafts that are verified instead.
 * Guarantee: every running sequence that is past its prefill has an entry or a verification, and the rows of the batch are dense from 0.
 */
import type { KvCache } from '../kv/kv-cache.ts';
import type { PlanDraft } from './plan-draft.ts';
import type { RowMemory } from './row-memory.ts';
import type { RunningSet } from './running-set.ts';
import type { SchedulerSettings } from './scheduler-settings.ts';
import type { Sequence } from './sequence.ts';

export class DecodePlanner {
  readonly #settings: SchedulerSettings;
  readonly #kv: KvCache;
  readonly #running: RunningSet;
  readonly #rowMemory: RowMemory;

  constructor(parts: { settings: SchedulerSettings; kv: KvCache; running: RunningSet; rowMemory: RowMemory }) {
    this.#settings = parts.settings;
    this.#kv = parts.kv;
    this.#running = parts.running;
    this.#rowMemory = parts.rowMemory;
  }

  /** Puts drafts into chunks while the batch is small and room is free; returns the tokens of the step so far. */
  takeDrafts(draft: PlanDraft): number {
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
        purpose: 'verify',
        logitCount: count + 1,
        sample: true,
        choiceIds: [sequence.id],
      });
      draft.chunkSequences.push(sequence);
    }
    return decodingCount + tokens;
  }

  /** Makes the decoding rows the first ones; returns how many rows the batch has. */
  pack(draft: PlanDraft, chunkTokens: number): number {
    let decodingCount = 0;
    for (const sequence of this.#running) if (decodes(sequence)) decodingCount += 1;
    return this.#running.rows.pack(decodes, decodingCount, {
      // A verification goes on to decode in the next step; a prefill blocks a row for as long as it takes.
      fillerCost: sequence =>
        sequence.isPrefilling
          ? Math.ceil((sequence.prefillTarget - sequence.computedCount) / chunkTokens) * this.#settings.fillerCostTokens
          : 0,
      onMove: copy => {
        this.#kv.moveRow(copy.from, copy.to);
        this.#rowMemory.copy(copy, draft);
      },
    });
  }

  /** One entry for each of the first rows; a sequence that does not decode fills its row. Sets the rows of all chunks. */
  plan(draft: PlanDraft, packedLength: number): void {
    const { decode, decodeSequences } = draft;
    const { rows } = this.#running;
    let length = packedLength;
    let isReproducible = false;
    for (const sequence of this.#running) {
      if (!decodes(sequence)) continue;
      length = Math.max(length, sequence.row! + 1);
      isReproducible ||= sequence.request.reproducible;
    }
    // The engine may pad a batch to so many rows; a row that is in use there gets an entry, so that it is not overwritten.
    if (isReproducible) while (length < Math.min(this.#settings.minDecodeRows, rows.rowCount) && rows.at(length)) length += 1;
    for (let row = 0; row < length; row += 1) {
      const sequence = rows.at(row);
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
}

/** Goes into the decode batch of the plan being made. */
function decodes(sequence: Sequence): boolean {
  return !sequence.isPrefilling && sequence.chunkEnd === undefined;
}
