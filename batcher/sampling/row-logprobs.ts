/**
 * RowLogprobs: log-probabilities of the model's own distribution, before bias, penalties, masks and temperature, as OpenAI reports them.
 * By log-sum-exp; absolute error below 1e-6.
 */
import type { Candidates } from './candidates.ts';
import type { LogitRow } from './logit-row.ts';

export interface SampledLogprob {
  logprob: number;
  /** The most likely tokens, best first, ties by lower id. */
  top: { tokenId: number; logprob: number }[];
}

/** Reported where the probability is 0 or too small to tell; JSON has no -Infinity, and OpenAI's own servers say this. */
const LEAST_LOGPROB = -9999;

/** Of a scanned row with a finite maximum. Overwrites the candidates. */
export function rowLogprobs(
  row: LogitRow,
  tokenId: number,
  { topCount, candidates }: { topCount: number; candidates: Candidates },
): SampledLogprob {
  const { logits } = row;
  const logSum = row.max + Math.log(row.weigh(1));
  const logprobOf = (id: number): number => (logits[id]! > -Infinity ? Math.max(LEAST_LOGPROB, logits[id]! - logSum) : LEAST_LOGPROB);
  const ids = topCount === 0 ? [] : candidates.mostLikely(row, topCount);
  return { logprob: logprobOf(tokenId), top: ids.map(id => ({ tokenId: id, logprob: logprobOf(id) })) };
}
