import { expect, test } from 'vitest';
import type { Engine } from '../../batcher/engine/engine.ts';
import { logSumExp, perplexity, topToken } from '../../batcher/quality/perplexity.ts';
import { agreement, type ReferencePrompt } from '../../bench/agreement.ts';

const VOCAB = 8;

/** Foresees (last token + 1) with probability `sure`, the rest evenly; checks that it is fed as an engine must be. */
function countingEngine(sure: number) {
  const held: number[][] = [];
  const released: number[] = [];
  const logitsAfter = (tokens: readonly number[]) => {
    const logits = new Float32Array(tokens.length * VOCAB).fill(Math.log((1 - sure) / (VOCAB - 1)) + 5);
    tokens.forEach((token, i) => {
      logits[i * VOCAB + ((token + 1) % VOCAB)] = Math.log(sure) + 5;
    });
    return logits;
  };
  const engine = {
    shape: { vocabSize: VOCAB, contextTokens: 64, rowCount: 4, blockTokens: 16, kvBytesPerToken: 1 },
    async prefill({ row, start, tokenIds, logitCount }) {
      held[row] ??= [];
      expect(held[row].length).toBe(start);
      held[row].push(...tokenIds);
      return logitsAfter(tokenIds.slice(tokenIds.length - logitCount));
    },
    async decode({ tokenIds, positions }) {
      tokenIds.forEach((token, row) => {
        expect(held[row]?.length).toBe(positions[row]);
        held[row]!.push(token);
      });
      return logitsAfter(tokenIds);
    },
    releaseRow: row => void released.push(row),
  } as Partial<Engine> as Engine;
  return { engine, held, released };
}

const count = (length: number, from = 0) => Array.from({ length }, (_, i) => (from + i) % VOCAB);

test.each([1, 3, 9, 100])('perplexity of a text foreseen with probability 0.5 is 2, in chunks of %i', async chunkTokens => {
  const { engine, held, released } = countingEngine(0.5);
  expect(await perplexity(engine, { tokenIds: count(10), chunkTokens })).toBeCloseTo(2, 5);
  expect(held[0]).toEqual(count(9));
  expect(released).toEqual([0]);
});

test('perplexity of a text that is never foreseen is that of the rest', async () => {
  const { engine } = countingEngine(0.3);
  expect(await perplexity(engine, { tokenIds: [0, 0, 0, 0], chunkTokens: 2 })).toBeCloseTo(10, 5);
});

test('logSumExp does not overflow, the lower of two equal ids wins', () => {
  expect(logSumExp(new Float32Array([1000, 1000]))).toBeCloseTo(1000 + Math.log(2), 3);
  expect(topToken(new Float32Array([1, 3, 3, 2]))).toBe(1);
});

function reference(prompt: number[], steps: number, logprob: number): ReferencePrompt {
  const greedy = count(steps, prompt.at(-1)! + 1);
  return {
    user: '',
    prompt_token_ids: prompt,
    greedy_token_ids: greedy,
    steps: greedy.map(tokenId => ({ top: [[tokenId, logprob]] })),
  };
}

test('agreement feeds the reference tokens to dense rows, the longest answer first, whatever the order of the prompts', async () => {
  const { engine, held, released } = countingEngine(0.5);
  const result = await agreement(engine, [
    reference([1, 2], 2, Math.log(0.5)),
    reference([3], 5, Math.log(0.5)),
    reference([4, 5, 6], 3, Math.log(0.5)),
  ]);
  expect(result.stepCount).toBe(10);
  expect(result.topTokenAgreement).toBe(1);
  expect(result.meanAbsoluteLogprobDifference).toBeCloseTo(0, 6);
  expect(held).toEqual([count(5, 3), count(5, 4), count(3, 1)]);
  expect(released).toEqual([0, 1, 2]);
});

test('agreement counts a step that differs and the distance of its log-probability', async () => {
  const { engine } = countingEngine(0.5);
  const strange = reference([1], 4, Math.log(0.5) - 0.2);
  strange.steps[0]!.top[0]![0] = 7;
  const result = await agreement(engine, [strange]);
  expect(result.topTokenAgreement).toBe(0.75);
  expect(result.meanAbsoluteLogprobDifference).toBeGreaterThan(0.2);
});

test('more prompts than rows is an error before anything runs', async () => {
  const { engine, held } = countingEngine(0.5);
  await expect(
    agreement(
      engine,
      Array.from({ length: 5 }, () => reference([1], 1, 0)),
    ),
  ).rejects.toThrow('5 prompts');
  expect(held).toEqual([]);
});
