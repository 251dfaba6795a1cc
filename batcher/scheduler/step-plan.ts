/**
 * StepPlan: what one step of the engine is to do, as plain data; made by the scheduler, run by the loop, handed back to commit.
 * Order of execution: saves, copies (in the order given), loads, releases, then chunks (those of prefills
 * first), then the decode batch. A save that none of these would notice may be done beside them.
 */
import type { BlockCopy } from '../engine/engine.ts';

/** The decode row r of a step is entry r: rows are dense from 0. */
export interface DecodeEntry {
  sequenceId: string;
  tokenId: number;
  position: number;
  /**
   * False where the logits are not wanted: a known token is recomputed by a decode step (reproducible preemption), or the row only
   * fills the batch for a sequence that does not decode in this step; what that writes is overwritten before it is read.
   */
  sample: boolean;
  /** Its bits must not depend on the rest of the batch. */
  reproducible: boolean;
}

export interface ChunkEntry {
  sequenceId: string;
  row: number;
  start: number;
  tokenIds: readonly number[];
  /** `prefill` computes known tokens, `verify` the last known one and drafts of what may follow. */
  purpose: 'prefill' | 'verify';
  /** Logits wanted for this many last positions: all where the prompt is scored or drafts are verified, else 1 at the end of a prefill and 0 before. */
  logitCount: number;
  /** The choices sample from the last logits of a prefill that ends here, and from all of a verification. */
  sample: boolean;
  /** The choices that share this prefill: at its end each samples its own first token from the same logits. */
  choiceIds: readonly string[];
}

export interface Admission {
  sequenceId: string;
  /** Tokens whose keys and values came from the prefix store. */
  cachedTokens: number;
  /** It ran before and was preempted. */
  resumed: boolean;
}

export interface StepPlan {
  /** From 1, no gap. */
  step: number;
  /** Sequences that lost their row in this plan; they wait again. */
  preempted: readonly string[];
  /** Sequences that got a row in this plan. */
  admitted: readonly Admission[];
  /** Sequences that the whole KV budget could not hold any longer: they have ended here, finish reason `length`. */
  exhausted: readonly string[];
  saves: readonly BlockCopy[];
  /** Row to row; a move is a copy whose source is then free or overwritten by a later copy. */
  copies: readonly { from: number; to: number; tokens: number }[];
  loads: readonly BlockCopy[];
  /** Memory that nothing needs any more. */
  releases: readonly { row: number; fromToken: number }[];
  releasedBlocks: readonly number[];
  chunks: readonly ChunkEntry[];
  decode: readonly DecodeEntry[];
}

/** What came of one sequence in a step: the tokens sampled for it, in order (several after a verification that accepted drafts). */
export interface StepOutcome {
  sequenceId: string;
  tokenIds: readonly number[];
  /** The last of tokenIds ends the sequence. */
  finished: boolean;
}

/** Keys and values that a step copies before it computes. */
export function copiedTokens({ saves, loads, copies }: Pick<StepPlan, 'saves' | 'loads' | 'copies'>, blockTokens: number): number {
  let tokens = 0;
  for (const copy of saves) tokens += copy.blockIds.length * blockTokens;
  for (const copy of loads) tokens += copy.blockIds.length * blockTokens;
  for (const copy of copies) tokens += copy.tokens;
  return tokens;
}
