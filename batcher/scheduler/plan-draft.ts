/**
 * PlanDraft: a plan while it is made and while it runs, with what commit needs to know beside the plan itself.
 * Guarantee: the entries of chunks and decode and their sequences are in the same order.
 */
import type { BlockCopy } from '../engine/engine.ts';
import type { PrefixHandle } from '../kv/kv-cache.ts';
import type { RowCopy } from './row-map.ts';
import type { Sequence } from './sequence.ts';
import type { Admission, ChunkEntry, DecodeEntry, StepPlan } from './step-plan.ts';

/** A plan while it is made and while it runs. */
export interface PlanDraft {
  plan: { -readonly [Part in keyof StepPlan]: StepPlan[Part] };
  preempted: string[];
  admitted: Admission[];
  exhausted: string[];
  saves: BlockCopy[];
  copies: RowCopy[];
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

export function makePlanDraft(step: number): PlanDraft {
  const parts = {
    preempted: [] as string[],
    admitted: [] as Admission[],
    exhausted: [] as string[],
    saves: [] as BlockCopy[],
    copies: [] as RowCopy[],
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
export function isEmpty(plan: StepPlan): boolean {
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
