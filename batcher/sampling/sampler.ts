/**
 * Sampler: chooses the tokens of one sequence. A choice depends on the logits, the tokens accepted so far and (seed, choice, position) only,
 * never on what else is in the batch, so a sequence is taken up anywhere by accepting its tokens again.
 *
 * Order: logit_bias, penalties, masks (logit-edits.ts), temperature, top_k, top_p, min_p, typical_p (candidates.ts), draw.
 */
import { ApiError } from '../../shared/errors.ts';
import type { Sampling } from '../../shared/job.ts';
import { Candidates, type Narrowing } from './candidates.ts';
import { CounterRandom } from './counter-random.ts';
import { type LogitEditSource, LogitEdits } from './logit-edits.ts';
import type { LogitRow } from './logit-row.ts';
import { rowLogprobs, type SampledLogprob } from './row-logprobs.ts';
import type { SamplingScratch } from './sampling-scratch.ts';
import { onlyToken, type TokenMask } from './token-mask.ts';

/** Below this temperature every other token's weight is 0 unless the logits are equal: greedy. */
const GREEDY_BELOW = 1e-5;

export interface SamplerSource extends Omit<LogitEditSource, 'vocabSize'> {
  /** The request's seed, or one drawn at intake. */
  seed: number;
  /** Index of the choice within its request: each draws its own numbers. */
  choice: number;
}

export interface SampledToken {
  tokenId: number;
  /** Of the model's own distribution, before temperature and edits. Absent unless asked for. */
  logprob?: SampledLogprob;
}

export class Sampler {
  readonly #scratch: SamplingScratch;
  readonly #edits: LogitEdits;
  readonly #random: CounterRandom;
  readonly #candidates: Candidates;
  readonly #inverseTemperature: number;
  readonly #isGreedy: boolean;
  readonly #narrowing: Narrowing;
  readonly #narrows: boolean;
  readonly #topLogprobs: number | undefined;

  /** Throws ApiError `invalid_value` for a logit_bias that names no token of the model. */
  constructor(source: SamplerSource, scratch: SamplingScratch) {
    const { sampling } = source;
    this.#scratch = scratch;
    this.#edits = new LogitEdits({ ...source, vocabSize: scratch.vocabSize });
    this.#random = new CounterRandom(source.seed, source.choice);
    this.#candidates = new Candidates(scratch);
    this.#isGreedy = sampling.temperature < GREEDY_BELOW || sampling.topK === 1;
    this.#inverseTemperature = 1 / sampling.temperature;
    this.#narrowing = { topK: sampling.topK, topP: sampling.topP, minP: sampling.minP, typicalP: sampling.typicalP };
    this.#narrows = narrows(sampling);
    this.#topLogprobs = sampling.topLogprobs;
  }

  /**
   * The token for `position`, from the model's logits of one row [vocabSize], which are only read; one that `mask` allows, where there is a mask.
   * The same arguments after the same accepted tokens give the same token.
   * Throws ApiError `generation_failed` where no token is left: logits without a number, or a mask that allows nothing.
   */
  sample(row: Float32Array, position: number, mask?: TokenMask): SampledToken {
    if (row.length !== this.#scratch.vocabSize) throw new RangeError(`A row has ${row.length} logits, not ${this.#scratch.vocabSize}.`);
    const only = mask && onlyToken(mask);
    if (only !== undefined && this.#topLogprobs === undefined && Number.isFinite(row[only])) return { tokenId: only };
    const { model, edited } = this.#scratch;
    const isEdited = this.#edits.isNeeded(mask);
    if (isEdited) {
      this.#edits.apply(row, mask, edited);
    } else {
      model.load(row);
    }
    const tokenId = this.#choose(isEdited ? edited : model, position);
    if (this.#topLogprobs === undefined) return { tokenId };
    if (isEdited) {
      model.load(row);
      // Edits may have left out the logit that spoils all log-probabilities.
      requireFinite(model);
    }
    return { tokenId, logprob: rowLogprobs(model, tokenId, { topCount: this.#topLogprobs, candidates: this.#candidates }) };
  }

  /** Adds a token to the sequence: one that sample() chose, or, when a sequence is taken up, one that was chosen before. */
  accept(tokenId: number): void {
    this.#edits.accept(tokenId);
  }

  #choose(row: LogitRow, position: number): number {
    requireFinite(row);
    if (this.#isGreedy) return row.argmax();
    const uniform = this.#random.at(position);
    if (!this.#narrows) return row.tokenAt(uniform * row.weigh(this.#inverseTemperature));
    return this.#candidates.choose(row, this.#inverseTemperature, { uniform, narrowing: this.#narrowing });
  }
}

function requireFinite(row: LogitRow): void {
  if (Number.isFinite(row.max)) return;
  throw new ApiError('generation_failed', 'No token can be chosen: the model gave no finite logit for an allowed token.');
}

function narrows({ topK, topP, minP, typicalP }: Sampling): boolean {
  return topK !== undefined || (topP ?? 1) < 1 || (minP ?? 0) > 0 || (typicalP ?? 1) < 1;
}
