/** SamplingParameters: parameters at their edges over logits at theirs; what comes out is a token of the vocabulary that may be chosen, or an error in words. */
import { Sampler } from '../../batcher/sampling/sampler.ts';
import { SamplingScratch } from '../../batcher/sampling/sampling-scratch.ts';
import type { TokenMask } from '../../batcher/sampling/token-mask.ts';
import { ApiError } from '../../shared/errors.ts';
import { Sampling } from '../../shared/job.ts';
import type { Dice } from './dice.ts';
import type { PartSurface } from './surface.ts';

const STRANGE_LOGITS = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0, -0, 1e-45, 3.4028234e38, -3.4028234e38];
/** A vocabulary of a few tokens shows the edges sooner. */
const SMALL_VOCABULARY = 7;

export const samplingParameters: PartSurface = {
  what: 'sampling parameters and logits at their edges',
  async open({ manifest }) {
    const scratches = [SMALL_VOCABULARY, manifest.shape.vocabSize].map(size => new SamplingScratch(size));
    return {
      async feed(dice) {
        const scratch = scratches[dice.chance(0.8) ? 0 : 1]!;
        const { vocabSize } = scratch;
        const sampling = Sampling.parse(parameters(dice, vocabSize));
        const row = logits(dice, vocabSize);
        const mask = dice.chance(0.3) ? randomMask(dice, vocabSize) : undefined;
        let errors = 0;
        try {
          const seed = dice.pick([0, -1, 2 ** 53 - 1, -(2 ** 53 - 1), dice.below(2 ** 32)]);
          const sampler = new Sampler({ sampling, seed, choice: dice.below(8), ...sourceOf(dice) }, scratch);
          for (let position = dice.pick([0, 1, 2 ** 31 - 1]), times = 3; times > 0; times--, position++) {
            const { tokenId, logprob } = sampler.sample(row, position, mask);
            if (!Number.isInteger(tokenId) || tokenId < 0 || tokenId >= vocabSize) throw new Error(`token ${tokenId} of ${vocabSize}`);
            if (Number.isNaN(row[tokenId])) throw new Error('a token was chosen whose logit is no number');
            if (mask !== undefined && ((mask.words[tokenId >>> 5]! >>> (tokenId & 31)) & 1) === 0)
              throw new Error('a masked token was chosen');
            // Absent from JSON is what is no number, and a client's library cannot read it.
            if (logprob !== undefined && !(logprob.logprob <= 1e-6)) throw new Error(`log-probability ${logprob.logprob}`);
            sampler.accept(tokenId);
          }
        } catch (thrown) {
          if (!(thrown instanceof ApiError)) throw thrown;
          errors += 1;
        }
        return errors === 0 ? 'sampled' : 'refused (ApiError)';
      },
    };
  },
};

function randomMask(dice: Dice, vocabSize: number): TokenMask {
  const words = Uint32Array.from({ length: Math.ceil(vocabSize / 32) }, () => dice.pick([0, 0xffffffff, dice.below(2 ** 32)]));
  let count = 0;
  for (let id = 0; id < vocabSize; id++) count += (words[id >>> 5]! >>> (id & 31)) & 1;
  return { words, count };
}

function parameters(dice: Dice, vocabSize: number): Record<string, unknown> {
  const maybe = (name: string, values: readonly unknown[]) => (dice.chance(0.4) ? { [name]: dice.pick(values) } : {});
  return {
    temperature: dice.pick([0, 1e-300, 1e-6, 1e-5, 1, 2, 5e-324]),
    ...maybe('topP', [5e-324, 1e-10, 0.5, 1 - 1e-16, 1]),
    ...maybe('topK', [1, 2, vocabSize, vocabSize + 1, Number.MAX_SAFE_INTEGER]),
    ...maybe('minP', [0, 5e-324, 0.5, 1]),
    ...maybe('typicalP', [5e-324, 0.5, 1]),
    ...maybe('presencePenalty', [-2, 2]),
    ...maybe('frequencyPenalty', [-2, 2]),
    ...maybe('repetitionPenalty', [5e-324, 1e-300, 1, 10]),
    ...maybe('logitBias', [
      {},
      { 0: 100, 1: -100 },
      { [vocabSize - 1]: -100 },
      { [vocabSize]: 1 },
      { '-1': 1 },
      { '1e0': 1 },
      { '': 5 },
      { __proto__x: 1 },
    ]),
    ...maybe('topLogprobs', [0, 1, 20]),
  };
}

function logits(dice: Dice, count: number): Float32Array {
  const kind = dice.below(4);
  const one = dice.pick(STRANGE_LOGITS);
  return Float32Array.from({ length: count }, () => {
    if (kind === 0) return one;
    if (kind === 1) return dice.pick(STRANGE_LOGITS);
    if (kind === 2) return dice.chance(0.1) ? dice.pick(STRANGE_LOGITS) : dice.below(1_000) / 50 - 10;
    return dice.below(2) * 1e30;
  });
}

function sourceOf(dice: Dice) {
  return {
    promptTokenIds: dice.pick([[], [0], [1, 1, 1, 2]]),
    endTokenIds: dice.pick([[], [0], [0, 1, 2, 3, 4, 5, 6]]),
    stopping: dice.pick([{}, { minTokens: 1 }, { minTokens: 2 ** 31 }, { ignoreEos: true }]),
  };
}
