/** PromptEcho and the bytes that it tells: whatever the prompt and however its logits come, joined they are the prompt, each token once. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { PromptEcho } from '../../batcher/prompt-echo.ts';
import { PromptScorer } from '../../batcher/sampling/prompt-scorer.ts';
import { SamplingScratch } from '../../batcher/sampling/sampling-scratch.ts';
import { promptTokenBytes } from '../../batcher/text/prompt-text.ts';
import { random } from './random.ts';

const VOCABULARY = 300;
/** Token 1 to 256 is a byte, 257 a BOS, 258 a control token, 259 a word with its space. */
const SPELLED = ['<s>', '<|im_start|>', ' word'].map(text => new TextEncoder().encode(text));
const spelled = (id: number): Uint8Array => (id > 256 ? (SPELLED[id - 257] ?? new Uint8Array()) : Uint8Array.of(id - 1));
const bytesOf = (text: string): number[] => Array.from(new TextEncoder().encode(text), byte => byte + 1);
const joined = (pieces: readonly Uint8Array[]): string => Buffer.concat(pieces).toString();
const scorer = new PromptScorer(new SamplingScratch(VOCABULARY));

describe('the bytes of each token', () => {
  test.each([
    ['as they are', bytesOf('añb'), 'añb', 'añb'],
    ['without the BOS that the tokenizer put in front', [257, ...bytesOf('ab')], 'ab', '|a|b'],
    ['with the BOS that the client wrote', [257, ...bytesOf('ab')], '<s>ab', '<s>|a|b'],
    ['a control token that the client wrote', [258, ...bytesOf('a')], '<|im_start|>a', '<|im_start|>|a'],
    ['without the space that the tokenizer put in front', [257, 259, 259], 'word word', '|word| word'],
    ['all with the first where the tokens are of another text', bytesOf('\ufffdb'), '\ue000b', '\ue000b|||'],
    ['nothing but a BOS', [257], '', ''],
  ])('%s', (_name, tokenIds, text, expected) => {
    const pieces = promptTokenBytes(tokenIds, spelled, text);
    expect(joined(pieces)).toBe(text);
    if (expected.includes('|') && !expected.startsWith('<|')) expect(pieces.map(piece => joined([piece])).join('|')).toBe(expected);
  });

  test('of token ids they are those of the tokens', () => {
    expect(joined(promptTokenBytes([257, 258, 259], spelled))).toBe('<s><|im_start|> word');
  });
});

function logitsFor(position: number): Float32Array {
  const pick = random(position + 1);
  return Float32Array.from({ length: VOCABULARY }, () => pick(1000) / 100);
}

function rows(start: number, count: number): Float32Array {
  const all = new Float32Array(count * VOCABULARY);
  for (let i = 0; i < count; i += 1) all.set(logitsFor(start + i), i * VOCABULARY);
  return all;
}

/** The textbook's way. */
function logprobOf(logits: Float32Array, tokenId: number): number {
  const sum = logits.reduce((total, logit) => total + Math.exp(logit), 0);
  return logits[tokenId]! - Math.log(sum);
}

test('any chunks, computed again or told by an earlier attempt: each token once, scored by the position before it', () => {
  const step = fc.record({ size: fc.integer({ min: 1, max: 9 }), isAgain: fc.boolean() });
  fc.assert(
    fc.property(fc.string({ unit: 'binary', minLength: 1, maxLength: 20 }), fc.array(step), fc.nat(30), (text, steps, skipped) => {
      const tokenIds = bytesOf(text.toWellFormed());
      const make = () =>
        new PromptEcho({
          tokenIds,
          pieces: promptTokenBytes(tokenIds, spelled, text),
          scoring: { scorer, topCount: 2, tokenBytes: spelled },
        });
      const whole = make().score(0, rows(0, tokenIds.length))!;
      expect(whole.text).toBe(text.toWellFormed());
      expect(whole.tokens!.map(token => token.tokenId)).toEqual(tokenIds);
      expect(whole.tokens![0]).toMatchObject({ logprob: null, top: [] });
      for (const [index, token] of whole.tokens!.entries()) {
        if (index === 0) continue;
        expect(token.logprob).toBeCloseTo(logprobOf(logitsFor(index - 1), tokenIds[index]!), 5);
        expect(token.top).toHaveLength(2);
        expect(token.top[0]!.logprob).toBeGreaterThanOrEqual(token.top[1]!.logprob);
      }

      const echo = make();
      const skip = Math.min(skipped, tokenIds.length);
      echo.skip(skip);
      const told = [];
      let said = '';
      let start = 0;
      for (const { size, isAgain } of [...steps, { size: tokenIds.length, isAgain: false }]) {
        // The last position scores what is sampled, which is no prompt token.
        const count = Math.min(size, tokenIds.length - start);
        for (let time = isAgain ? 2 : 1; time > 0 && count > 0; time -= 1) {
          const piece = echo.score(start, rows(start, count));
          told.push(...(piece?.tokens ?? []));
          said += piece?.text ?? '';
          expect(piece?.tokenCount ?? 0).toBe(piece?.tokens?.length ?? 0);
        }
        start += count;
      }
      expect(echo.isTold).toBe(true);
      expect(told).toEqual(whole.tokens!.slice(skip));
      expect(text.toWellFormed().endsWith(said)).toBe(true);
      if (skip === 0) expect(said).toBe(text.toWellFormed());
    }),
  );
});

test('the text alone is told at once', () => {
  const echo = new PromptEcho({ tokenIds: bytesOf('añb'), pieces: bytesOf('añb').map(spelled) });
  expect(echo.isScored).toBe(false);
  expect(echo.rest()).toEqual({ tokenCount: 4, text: 'añb' });
  expect(echo.isTold).toBe(true);
});

test('logits that are no numbers are an error', () => {
  const echo = new PromptEcho({
    tokenIds: [1, 2],
    pieces: [spelled(1), spelled(2)],
    scoring: { scorer, topCount: 0, tokenBytes: spelled },
  });
  expect(() => echo.score(0, new Float32Array(2 * VOCABULARY).fill(Number.NaN))).toThrow(
    expect.objectContaining({ code: 'generation_failed' }),
  );
});
