/**
 * Perplexity: how well a model foresees a fixed text: exp of the mean negative log-probability of each token given all before it.
 * Computed through the product's own prefill, in chunks, as a prompt would be.
 */
import type { Engine } from '../engine/engine.ts';

export interface PerplexityOptions {
  tokenIds: readonly number[];
  chunkTokens: number;
  onChunk?(doneTokens: number): void;
}

/** Of tokenIds[1] on; row 0 of the engine is used and released. */
export async function perplexity(engine: Engine, { tokenIds, chunkTokens, onChunk }: PerplexityOptions): Promise<number> {
  const { vocabSize } = engine.shape;
  let negativeLogSum = 0;
  // The last token is only foreseen, never fed.
  for (let start = 0; start < tokenIds.length - 1; start += chunkTokens) {
    const chunk = tokenIds.slice(start, Math.min(start + chunkTokens, tokenIds.length - 1));
    const logits = await engine.prefill({ row: 0, start, tokenIds: chunk, logitCount: chunk.length });
    for (let i = 0; i < chunk.length; i++) {
      const row = logits.subarray(i * vocabSize, (i + 1) * vocabSize);
      negativeLogSum += logSumExp(row) - row[tokenIds[start + i + 1]!]!;
    }
    onChunk?.(start + chunk.length);
  }
  engine.releaseRow(0, 0);
  return Math.exp(negativeLogSum / (tokenIds.length - 1));
}

/** In float64 and from the maximum, so that nothing overflows. */
export function logSumExp(logits: Float32Array): number {
  let max = Number.NEGATIVE_INFINITY;
  for (const logit of logits) if (logit > max) max = logit;
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - max);
  return max + Math.log(sum);
}

/** The id with the greatest logit; the lower one when two are equal. */
export function topToken(logits: Float32Array): number {
  let best = 0;
  for (let id = 1; id < logits.length; id++) if (logits[id]! > logits[best]!) best = id;
  return best;
}
