import { describe, expect, test } from 'vitest';
import { CounterRandom } from '../../../batcher/sampling/counter-random.ts';
import { Sampler, type SamplerSource } from '../../../batcher/sampling/sampler.ts';
import { SamplingScratch } from '../../../batcher/sampling/sampling-scratch.ts';
import type { TokenMask } from '../../../batcher/sampling/token-mask.ts';
import type { Sampling } from '../../../shared/job.ts';
import { type ReferenceRequest, referenceProbabilities } from './reference-sampling.ts';

function sampler(sampling: Sampling, { vocabSize = 8, ...rest }: Partial<SamplerSource> & { vocabSize?: number } = {}): Sampler {
  const source = { sampling, stopping: {}, endTokenIds: [0], promptTokenIds: [], seed: 1, choice: 0, ...rest };
  return new Sampler(source, new SamplingScratch(vocabSize));
}

function noise(size: number, seed: number, deviation = 2): Float32Array {
  const random = new CounterRandom(seed, 9);
  return Float32Array.from(
    { length: size },
    (_, i) => deviation * (random.at(3 * i) + random.at(3 * i + 1) + random.at(3 * i + 2) - 1.5) * 2,
  );
}

/** Pearson's statistic of draws against exact probabilities, rare tokens together. */
function chiSquare(counts: Map<number, number>, probabilities: Map<number, number>, draws: number): { statistic: number; degrees: number } {
  const cells: { seen: number; expected: number }[] = [];
  const rare = { seen: 0, expected: 0 };
  for (const [id, probability] of probabilities) {
    const cell = { seen: counts.get(id) ?? 0, expected: probability * draws };
    if (cell.expected >= 8) {
      cells.push(cell);
    } else {
      rare.seen += cell.seen;
      rare.expected += cell.expected;
    }
  }
  if (rare.expected > 0) cells.push(rare);
  return { statistic: cells.reduce((sum, { seen, expected }) => sum + (seen - expected) ** 2 / expected, 0), degrees: cells.length - 1 };
}

describe('what is drawn', () => {
  const requests: ReferenceRequest[] = [
    { temperature: 1 },
    { temperature: 0.6 },
    { temperature: 2, topP: 0.9 },
    { temperature: 1, topK: 20 },
    { temperature: 1, minP: 0.1 },
    { temperature: 1, typicalP: 0.8 },
    { temperature: 1.3, topK: 60, topP: 0.95, minP: 0.02, typicalP: 0.97 },
  ];
  test.each(requests.flatMap(request => [120, 4000].map(size => ({ request, size }))))(
    'follows the exact distribution: $request, $size tokens',
    ({ request, size }) => {
      const logits = noise(size, 5);
      const probabilities = referenceProbabilities(logits, request)!;
      const one = sampler(request as Sampling, { vocabSize: size, seed: 1234 });
      const draws = size > 1000 ? 6_000 : 20_000;
      const counts = new Map<number, number>();
      for (let position = 0; position < draws; position++) {
        const { tokenId } = one.sample(logits, position);
        counts.set(tokenId, (counts.get(tokenId) ?? 0) + 1);
      }
      expect([...counts.keys()].filter(id => !probabilities.has(id))).toEqual([]);
      const { statistic, degrees } = chiSquare(counts, probabilities, draws);
      // Five standard deviations.
      expect(statistic).toBeLessThan(degrees + 5 * Math.sqrt(2 * degrees));
    },
  );

  test('a flat row whose nucleus is too long for a list is drawn from evenly, and only from the nucleus', () => {
    const size = 16_384;
    const logits = new Float32Array(size).fill(2);
    const one = sampler({ temperature: 1, topP: 0.5 }, { vocabSize: size });
    const ids = Array.from({ length: 1000 }, (_, position) => one.sample(logits, position).tokenId);
    expect(Math.max(...ids)).toBeLessThan(size / 2);
    const lowHalf = ids.filter(id => id < size / 4).length;
    expect(Math.abs(lowHalf - 500)).toBeLessThan(80);
  });
});

describe('reproducible (cases 13, 14)', () => {
  const logits = noise(500, 1);

  test('the token of a position depends on seed, choice and position only', () => {
    const draw = (source: Partial<SamplerSource>, positions: number[]): number[] => {
      const one = sampler({ temperature: 1 }, { vocabSize: 500, ...source });
      return positions.map(position => one.sample(logits, position).tokenId);
    };
    const positions = Array.from({ length: 64 }, (_, i) => i);
    const first = draw({ seed: 42 }, positions);
    expect(draw({ seed: 42 }, [...positions].reverse()).reverse()).toEqual(first);
    expect(draw({ seed: 43 }, positions)).not.toEqual(first);
    expect(draw({ seed: 42, choice: 1 }, positions)).not.toEqual(first);
  });

  test('samplers that share scratch do not disturb each other', () => {
    const scratch = new SamplingScratch(500);
    const make = (sampling: Sampling) =>
      new Sampler({ sampling, stopping: {}, endTokenIds: [], promptTokenIds: [1, 2], seed: 42, choice: 0 }, scratch);
    const alone = make({ temperature: 0.8, topP: 0.9 });
    const expected = Array.from({ length: 32 }, (_, position) => alone.sample(logits, position).tokenId);
    const seeded = make({ temperature: 0.8, topP: 0.9 });
    const others = [make({ temperature: 2, topK: 7, topLogprobs: 20 }), make({ temperature: 1, repetitionPenalty: 2, typicalP: 0.5 })];
    const beside = Array.from({ length: 32 }, (_, position) => {
      for (const other of others) other.accept(other.sample(noise(500, position), position).tokenId);
      return seeded.sample(logits, position).tokenId;
    });
    expect(beside).toEqual(expected);
  });

  test('accepting the tokens again brings a new sampler to the same state', () => {
    const sampling = { temperature: 1, presencePenalty: 1, frequencyPenalty: 0.5, repetitionPenalty: 1.2, topP: 0.9 };
    const source = { vocabSize: 500, promptTokenIds: [3, 4, 5], stopping: { minTokens: 10 } };
    const one = sampler(sampling, source);
    const tokens: number[] = [];
    for (let position = 0; position < 40; position++) {
      const { tokenId } = one.sample(logits, position);
      one.accept(tokenId);
      tokens.push(tokenId);
    }
    const again = sampler(sampling, source);
    for (const tokenId of tokens.slice(0, 25)) again.accept(tokenId);
    for (let position = 25; position < 40; position++) {
      const { tokenId } = again.sample(logits, position);
      again.accept(tokenId);
      expect(tokenId).toBe(tokens[position]);
    }
  });

  test('the row is only read', () => {
    const row = noise(500, 3);
    const copy = row.slice();
    const mask = { words: new Uint32Array(16).fill(0xffffffff), count: 500 };
    const one = sampler(
      { temperature: 1, logitBias: { '3': 5 }, repetitionPenalty: 2, topP: 0.5, topLogprobs: 5 },
      { vocabSize: 500, promptTokenIds: [1] },
    );
    one.sample(row, 0, mask);
    expect(row).toEqual(copy);
  });
});

describe('greedy', () => {
  test('equal logits: the lowest id, also across blocks', () => {
    const logits = new Float32Array(2000).fill(-1);
    logits[1500] = 3;
    logits[700] = 3;
    expect(sampler({ temperature: 0 }, { vocabSize: 2000 }).sample(logits, 0).tokenId).toBe(700);
  });

  test('temperature 0, one too small to divide by, and top_k 1 agree', () => {
    const logits = noise(300, 8);
    const expected = logits.indexOf(Math.max(...logits));
    for (const sampling of [{ temperature: 0 }, { temperature: 1e-300 }, { temperature: 2, topK: 1 }, { temperature: 1e-4, topP: 0.5 }]) {
      expect(sampler(sampling, { vocabSize: 300 }).sample(logits, 3).tokenId).toBe(expected);
    }
  });
});

describe('edits of the logits', () => {
  const logits = Float32Array.from([0, 1, 2, 3, 2.5, -1, -2, -3]);
  const greedy = (sampling: Partial<Sampling>, source: Partial<SamplerSource> = {}, accepted: number[] = []): number => {
    const one = sampler({ temperature: 0, ...sampling }, source);
    for (const tokenId of accepted) one.accept(tokenId);
    return one.sample(logits, accepted.length).tokenId;
  };

  test('case 17: presence and frequency penalties see generated tokens only', () => {
    const promptTokenIds = [3, 3, 3, 3];
    const first = (sampling: Partial<Sampling>) =>
      sampler({ temperature: 0, topLogprobs: 5, ...sampling }, { promptTokenIds }).sample(logits, 4);
    expect(first({ presencePenalty: 2, frequencyPenalty: 2 })).toEqual(first({}));
    expect(greedy({ presencePenalty: 2 }, { promptTokenIds }, [3])).toBe(4);
    expect(greedy({ frequencyPenalty: 0.4 }, {}, [3])).toBe(3);
    expect(greedy({ frequencyPenalty: 0.4 }, {}, [3, 3])).toBe(4);
  });

  test('case 17: repetition penalty sees the prompt, on the first step already; negative logits are multiplied', () => {
    expect(greedy({ repetitionPenalty: 1.5 }, { promptTokenIds: [3] })).toBe(4);
    const negative = Float32Array.from([-1, -1.5, -9, -9, -9, -9, -9, -9]);
    expect(sampler({ temperature: 0, repetitionPenalty: 2 }, { promptTokenIds: [0] }).sample(negative, 1).tokenId).toBe(1);
  });

  test('logit_bias adds, and what is no token id is the client’s fault', () => {
    expect(greedy({ logitBias: { '7': 100 } })).toBe(7);
    expect(greedy({ logitBias: { '3': -100 } })).toBe(4);
    for (const key of ['8', '-1', 'x', '1.5', '', '99999999999']) {
      expect(() => sampler({ temperature: 0, logitBias: { [key]: 1 } })).toThrow(
        expect.objectContaining({ code: 'invalid_value', param: 'logit_bias' }),
      );
    }
  });

  test('min_tokens and ignore_eos bar the end tokens', () => {
    const stopping = { minTokens: 2 };
    expect(greedy({}, { endTokenIds: [3], stopping })).toBe(4);
    expect(greedy({}, { endTokenIds: [3], stopping }, [4])).toBe(4);
    expect(greedy({}, { endTokenIds: [3], stopping }, [4, 4])).toBe(3);
    expect(greedy({}, { endTokenIds: [3, 4], stopping: { ignoreEos: true } }, [1, 1, 1])).toBe(2);
  });

  test('a mask allows what its bits say; an end token that alone is allowed beats min_tokens', () => {
    const one = sampler({ temperature: 0 }, { endTokenIds: [5], stopping: { minTokens: 9 } });
    expect(one.sample(logits, 0, maskOf(0b0100_0010)).tokenId).toBe(1);
    expect(one.sample(logits, 0, maskOf(0b0110_0000)).tokenId).toBe(6);
    expect(one.sample(logits, 0, maskOf(0b0010_0000)).tokenId).toBe(5);
    expect(() => one.sample(logits, 0, maskOf(0))).toThrow(expect.objectContaining({ code: 'generation_failed' }));
  });

  test('a mask of most of the vocabulary: what it leaves out is never drawn, however likely', () => {
    const size = 1000;
    const banned = [0, 31, 32, 500, 998];
    const words = new Uint32Array(Math.ceil(size / 32)).fill(0xffffffff);
    const row = noise(size, 4);
    for (const id of banned) {
      words[id >> 5]! &= ~(1 << (id & 31));
      row[id] = 20;
    }
    const mask = { words, count: size - banned.length };
    const one = sampler({ temperature: 2 }, { vocabSize: size, endTokenIds: [] });
    for (let position = 0; position < 300; position++) expect(banned).not.toContain(one.sample(row, position, mask).tokenId);
    expect(sampler({ temperature: 0 }, { vocabSize: size }).sample(row, 0, mask).tokenId).toBe(argmaxOf(row, banned));
  });

  test('a mask over many words, with random draws: nothing else is ever drawn', () => {
    const size = 1000;
    const ids = [0, 31, 32, 500, 999];
    const words = new Uint32Array(Math.ceil(size / 32));
    for (const id of ids) words[id >> 5]! |= 1 << (id & 31);
    const mask = { words, count: ids.length };
    for (const sampling of [
      { temperature: 2 },
      { temperature: 2, topK: 100 },
      { temperature: 2, topP: 0.999 },
      { temperature: 2, minP: 1e-9 },
    ]) {
      const one = sampler(sampling, { vocabSize: size, endTokenIds: [] });
      const drawn = new Set(Array.from({ length: 300 }, (_, position) => one.sample(noise(size, 4), position, mask).tokenId));
      expect([...drawn].sort((a, b) => a - b)).toEqual(ids);
    }
  });
});

describe('log-probabilities (case 15)', () => {
  test('are those of the model, whatever temperature, bias and penalties do', () => {
    const logits = noise(3000, 6, 4);
    const sum = Array.from(logits, Math.exp).reduce((all, one) => all + one, 0);
    const order = Array.from(logits.keys()).sort((a, b) => logits[b]! - logits[a]! || a - b);
    for (const sampling of [
      { temperature: 0 },
      { temperature: 1.7, topK: 500 },
      { temperature: 0.5, logitBias: { '17': 100 }, repetitionPenalty: 1.4 },
    ]) {
      const one = sampler({ ...sampling, topLogprobs: 20 }, { vocabSize: 3000, promptTokenIds: [1, 2, 3] });
      const { tokenId, logprob } = one.sample(logits, 0);
      expect(logprob!.logprob).toBeCloseTo(logits[tokenId]! - Math.log(sum), 5);
      expect(logprob!.top.map(top => top.tokenId)).toEqual(order.slice(0, 20));
      for (const top of logprob!.top) expect(top.logprob).toBeCloseTo(logits[top.tokenId]! - Math.log(sum), 5);
    }
  });

  test('0 asks for the chosen token alone; equal logits in order of id; none below -9999', () => {
    const logits = Float32Array.from([1, 1, 1, -Infinity, -3e38, 1, 0, 0]);
    expect(sampler({ temperature: 0, topLogprobs: 0 }).sample(logits, 0).logprob!.top).toEqual([]);
    const { top } = sampler({ temperature: 0, topLogprobs: 7 }).sample(logits, 0).logprob!;
    expect(top.map(one => one.tokenId)).toEqual([0, 1, 2, 5, 6, 7, 4]);
    expect(top.at(-1)!.logprob).toBe(-9999);
    expect(sampler({ temperature: 0 }).sample(logits, 0)).toEqual({ tokenId: 0 });
  });
});

describe('a broken row', () => {
  test.each([{ value: Number.NaN }, { value: -Infinity }, { value: Infinity }])('of $value alone is an error, not a token', ({ value }) => {
    for (const sampling of [{ temperature: 0 }, { temperature: 1 }, { temperature: 1, topP: 0.5 }]) {
      expect(() => sampler(sampling).sample(new Float32Array(8).fill(value), 0)).toThrow(
        expect.objectContaining({ code: 'generation_failed' }),
      );
    }
  });

  test('an infinite logit that a mask leaves out is an error where log-probabilities are asked for', () => {
    const logits = Float32Array.from([Infinity, 1, 0, 0, 0, 0, 0, 0]);
    const mask = maskOf(0xfe);
    expect(sampler({ temperature: 0 }).sample(logits, 0, mask).tokenId).toBe(1);
    expect(() => sampler({ temperature: 0, topLogprobs: 1 }).sample(logits, 0, mask)).toThrow(
      expect.objectContaining({ code: 'generation_failed' }),
    );
  });

  test('of another length is our bug', () => {
    expect(() => sampler({ temperature: 0 }).sample(new Float32Array(7), 0)).toThrow(RangeError);
  });

  test('single NaN logits are never chosen', () => {
    const logits = Float32Array.from([Number.NaN, 1, Number.NaN, 0, -1, -1, -1, -1]);
    for (let position = 0; position < 50; position++)
      expect([1, 3, 4, 5, 6, 7]).toContain(sampler({ temperature: 2 }).sample(logits, position).tokenId);
    expect(sampler({ temperature: 0 }).sample(logits, 0).tokenId).toBe(1);
  });
});

/** The first 32 tokens. */
function maskOf(bits: number): TokenMask {
  return { words: Uint32Array.of(bits), count: bits.toString(2).replaceAll('0', '').length };
}

function argmaxOf(row: Float32Array, banned: readonly number[]): number {
  return [...row.keys()].filter(id => !banned.includes(id)).reduce((best, id) => (row[id]! > row[best]! ? id : best));
}
