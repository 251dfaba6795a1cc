/** PromptScorer: how likely a token of a prompt was after those before it, as the model itself had it; what RowLogprobs is for sampled tokens. */
import { ApiError } from '../../shared/errors.ts';
import { Candidates } from './candidates.ts';
import { rowLogprobs, type SampledLogprob } from './row-logprobs.ts';
import type { SamplingScratch } from './sampling-scratch.ts';

export class PromptScorer {
  readonly #scratch: SamplingScratch;
  readonly #candidates: Candidates;

  constructor(scratch: SamplingScratch) {
    this.#scratch = scratch;
    this.#candidates = new Candidates(scratch);
  }

  get vocabSize(): number {
    return this.#scratch.vocabSize;
  }

  /** From the logits [vocabSize] of the position before the token's. Throws ApiError `generation_failed` for logits without a number. */
  score(row: Float32Array, tokenId: number, topCount: number): SampledLogprob {
    const { model } = this.#scratch;
    model.load(row);
    if (!Number.isFinite(model.max))
      throw new ApiError('generation_failed', 'The prompt cannot be scored: the model gave no finite logit.');
    return rowLogprobs(model, tokenId, { topCount, candidates: this.#candidates });
  }
}
