/**
 * LogitEdits: what is done to a sequence's logits before temperature; never in place, so that the engine's row stays the model's own word.
 *
 * In this order: logit_bias; repetition penalty over prompt and generated tokens (Keskar et al.: CTRL, 2019: a positive logit is divided by it,
 * a negative one multiplied); frequency and presence penalty over generated tokens only (OpenAI: logit - count * frequency - presence); the
 * mask of a grammar; end tokens while min_tokens is not reached, or always with ignore_eos.
 */
import { ApiError } from '../../shared/errors.ts';
import type { Sampling, Stopping } from '../../shared/job.ts';
import type { LogitRow } from './logit-row.ts';
import { TokenCounts } from './token-counts.ts';
import { allowsOnly, copyAllowed, type TokenMask } from './token-mask.ts';

export interface LogitEditSource {
  sampling: Sampling;
  stopping: Pick<Stopping, 'minTokens' | 'ignoreEos'>;
  endTokenIds: readonly number[];
  promptTokenIds: readonly number[];
  vocabSize: number;
}

export class LogitEdits {
  readonly #biasIds: Int32Array;
  readonly #biases: Float32Array;
  readonly #presence: number;
  readonly #frequency: number;
  readonly #repetition: number;
  readonly #endTokenIds: readonly number[];
  /** End tokens are barred while fewer than this many tokens are generated. */
  readonly #minTokens: number;

  readonly #generated = new TokenCounts();
  /** Prompt and generated; kept only where the repetition penalty needs it. */
  readonly #seen = new TokenCounts();
  #generatedCount = 0;

  /** Throws ApiError `invalid_value` for a logit_bias key that is no token id of the model. */
  constructor({ sampling, stopping, endTokenIds, promptTokenIds, vocabSize }: LogitEditSource) {
    const biases = Object.entries(sampling.logitBias ?? {});
    for (const [key] of biases) {
      if (!/^\d{1,9}$/.test(key) || Number(key) >= vocabSize) {
        throw new ApiError('invalid_value', `logit_bias: "${key}" is not a token id of this model (0 to ${vocabSize - 1}).`, {
          param: 'logit_bias',
        });
      }
    }
    this.#biasIds = Int32Array.from(biases, ([key]) => Number(key));
    this.#biases = Float32Array.from(biases, ([, bias]) => bias);
    this.#presence = sampling.presencePenalty ?? 0;
    this.#frequency = sampling.frequencyPenalty ?? 0;
    this.#repetition = sampling.repetitionPenalty ?? 1;
    this.#endTokenIds = endTokenIds.filter(id => id < vocabSize);
    this.#minTokens = stopping.ignoreEos ? Infinity : (stopping.minTokens ?? 0);
    if (this.#repetition !== 1) for (const id of promptTokenIds) if (id < vocabSize) this.#seen.add(id);
  }

  accept(tokenId: number): void {
    this.#generatedCount++;
    if (this.#presence !== 0 || this.#frequency !== 0) this.#generated.add(tokenId);
    if (this.#repetition !== 1) this.#seen.add(tokenId);
  }

  /** Whether the logits of the next token differ from the model's. */
  isNeeded(mask: TokenMask | undefined): boolean {
    return mask !== undefined || this.#changesValues || this.#barsEnd;
  }

  /**
   * Loads the edited logits of `row` into `edited`.
   * Where the mask allows nothing but end tokens, they may be chosen: structure goes before length.
   */
  apply(row: Float32Array, mask: TokenMask | undefined, edited: LogitRow): void {
    const { logits } = edited;
    if (mask === undefined) {
      edited.load(row);
    } else {
      copyAllowed(row, mask, logits);
    }
    if (this.#changesValues) this.#editValues(logits);
    const barred = this.#barsEnd && (mask === undefined || !allowsOnly(mask, this.#endTokenIds)) ? this.#endTokenIds : [];
    for (const id of barred) logits[id] = -Infinity;
    if (mask !== undefined || this.#changesValues) {
      edited.scan();
    } else {
      edited.rescan(barred);
    }
  }

  get #barsEnd(): boolean {
    return this.#generatedCount < this.#minTokens && this.#endTokenIds.length > 0;
  }

  get #changesValues(): boolean {
    return this.#biasIds.length > 0 || this.#repetition !== 1 || this.#generated.ids.length > 0;
  }

  /** A masked -Infinity stays one under each of these. */
  #editValues(edited: Float32Array): void {
    for (let i = 0; i < this.#biasIds.length; i++) edited[this.#biasIds[i]!]! += this.#biases[i]!;
    if (this.#repetition !== 1) {
      for (const id of this.#seen.ids) {
        const logit = edited[id]!;
        edited[id] = logit > 0 ? logit / this.#repetition : logit * this.#repetition;
      }
    }
    const { ids, counts } = this.#generated;
    for (let i = 0; i < ids.length; i++) edited[ids[i]!]! -= counts[i]! * this.#frequency + this.#presence;
  }
}
