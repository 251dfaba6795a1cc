/**
 * ChunkPolicy: how large the next prefill chunks may be, from the wanted inter-token latency and what chunks have cost: beside running streams as much
 * as the bound leaves of a step; with nobody to hold up as much as a second allows, since who comes or leaves meanwhile waits for the chunk's end.
 */
import type { Scheduler } from './scheduler/scheduler.ts';
import type { StepRates } from './step-rates.ts';

/** Smaller chunks would spend most of their time on what does not depend on their size. */
const LEAST_CHUNK_TOKENS = 8;
const LONGEST_CHUNK_MS = 1_000;

export interface ChunkPolicyParts {
  rates: StepRates;
  scheduler: Pick<Scheduler, 'isDecoding' | 'setChunkTokens' | 'setPrefillRate'>;
  /** Time between two tokens of a running stream that a prefill beside it is to keep to, in ms. */
  itlSloMs: number;
}

/** Before each plan, for the streams that run by then. */
export function sizeChunks({ rates, scheduler, itlSloMs }: ChunkPolicyParts): void {
  const beside = rates.chunkMsWithin(itlSloMs);
  const ms = scheduler.isDecoding ? beside : Math.max(beside, LONGEST_CHUNK_MS);
  const within = rates.chunkTokensWithin(ms, 0);
  if (within === undefined) return;
  scheduler.setPrefillRate(rates.prefillTokensPerSecond);
  const tokensFrom = (start: number) => Math.max(LEAST_CHUNK_TOKENS, rates.chunkTokensWithin(ms, start) ?? within);
  scheduler.setChunkTokens(tokensFrom(0), tokensFrom);
}
