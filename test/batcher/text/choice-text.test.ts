import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ChoiceText, type ChoiceTextSource } from '../../../batcher/text/choice-text.ts';
import type { FinishReason, TokenLogprob } from '../../../shared/token-event.ts';

/** A vocabulary: the token id is an index into it. */
const words = ['a', 'b', 'ab', 'ba', 'c', ' ', '😀', 'é', 'ST', 'OP', 'STOP', 'xSTOPy', ''].map(text => new TextEncoder().encode(text));
const halves = [[0xf0, 0x9f], [0x98], [0x80], [0xc3], [0xa9], [0xa9, 0x53], [0x54, 0x4f], [0x50, 0xf0], [0xff]].map(bytes =>
  Uint8Array.from(bytes),
);
const vocabulary = [...words, ...halves];
const tokenBytes = (id: number): Uint8Array => vocabulary[id]!;
const sampled = (tokenId: number) => ({ tokenId, logprob: { logprob: -tokenId, top: [] } });

interface Whole {
  text: string;
  stopped: boolean;
  logprobs: TokenLogprob[];
}

/** Pushes the tokens in groups of these sizes, over and over. */
function run(
  tokenIds: readonly number[],
  source: Omit<ChoiceTextSource, 'tokenBytes'>,
  { sizes, reason = 'stop' }: { sizes: readonly number[]; reason?: FinishReason },
): Whole {
  const choice = new ChoiceText({ tokenBytes, ...source });
  const all: Whole = { text: '', stopped: false, logprobs: [] };
  const add = ({ text, stopped, logprobs }: Whole): void => {
    all.text += text;
    all.stopped = stopped;
    all.logprobs.push(...logprobs);
  };
  for (let at = 0, group = 0; at < tokenIds.length; group++) {
    const size = sizes[group % sizes.length]!;
    add(choice.push(tokenIds.slice(at, at + size).map(sampled)));
    at += size;
  }
  add(choice.end(reason));
  return all;
}

const tokens = fc.array(fc.nat({ max: vocabulary.length - 1 }), { maxLength: 25 });
const stop = fc.array(fc.constantFrom('STOP', 'ab', 'é', 'ST', '😀b', 'OPx', 'ba'), { maxLength: 3 });
const sizes = fc.array(fc.integer({ min: 1, max: 6 }), { minLength: 1, maxLength: 5 });

describe('ChoiceText', () => {
  test('any grouping of the tokens gives the same text and entries', () => {
    fc.assert(
      fc.property(
        tokens,
        stop,
        sizes,
        fc.constantFrom<FinishReason>('stop', 'length'),
        fc.nat({ max: 6 }),
        (tokenIds, stops, groups, reason, minTokens) => {
          const source = { stop: stops, minTokens };
          expect(run(tokenIds, source, { sizes: groups, reason })).toEqual(run(tokenIds, source, { sizes: [1], reason }));
        },
      ),
      { numRuns: 2000, seed: 12 },
    );
  });

  test('without stop strings: the decoding of the whole, one entry a token in order', () => {
    fc.assert(
      fc.property(tokens, sizes, (tokenIds, groups) => {
        const { text, logprobs } = run(tokenIds, {}, { sizes: groups });
        const joined = Uint8Array.from(tokenIds.flatMap(id => [...tokenBytes(id)]));
        expect(text).toBe(new TextDecoder('utf-8', { ignoreBOM: true }).decode(joined));
        expect(logprobs.map(entry => entry.tokenId)).toEqual(tokenIds);
      }),
      { numRuns: 1000, seed: 13 },
    );
  });

  test('with stop strings: text cut before the first, and entries of exactly the tokens that reach into it', () => {
    fc.assert(
      fc.property(fc.array(fc.nat({ max: words.length - 2 }), { maxLength: 25 }), stop, sizes, (tokenIds, stops, groups) => {
        const whole = tokenIds.map(id => new TextDecoder().decode(tokenBytes(id)));
        const { text, stopped, logprobs } = run(tokenIds, { stop: stops }, { sizes: groups });
        expect(whole.join('').startsWith(text)).toBe(true);
        expect(stops.some(one => text.includes(one))).toBe(false);
        expect(stopped).toBe(stops.some(one => whole.join('').includes(one)));
        if (stopped) expect(stops.some(one => whole.join('').startsWith(text + one))).toBe(true);
        let start = 0;
        const reaching = tokenIds.filter((_, i) => {
          const isIn = start < text.length;
          start += whole[i]!.length;
          return isIn;
        });
        expect(logprobs.map(entry => entry.tokenId)).toEqual(stopped ? reaching : tokenIds);
      }),
      { numRuns: 2000, seed: 14 },
    );
  });

  test('taken up anywhere, with the held tokens dropped or kept: the same text and entries', () => {
    fc.assert(
      fc.property(tokens, stop, fc.nat(), fc.boolean(), (tokenIds, stops, cut, drop) => {
        const expected = run(tokenIds, { stop: stops }, { sizes: [1] });
        const before = new ChoiceText({ tokenBytes, stop: stops });
        const at = cut % (tokenIds.length + 1);
        const sent = tokenIds.slice(0, at).map(id => before.push([sampled(id)]));
        const from = drop ? at - before.heldTokenCount : at;
        const again = new ChoiceText({ tokenBytes, stop: stops });
        const replayed = again.push(tokenIds.slice(0, from).map(sampled));
        expect(replayed.text.length).toBeLessThanOrEqual(sent.map(one => one.text).join('').length);
        const rest = [replayed, ...tokenIds.slice(from).map(id => again.push([sampled(id)])), again.end('stop')];
        expect(rest.map(one => one.text).join('')).toBe(expected.text);
        expect(rest.flatMap(one => one.logprobs)).toEqual(expected.logprobs);
        expect(expected.text.startsWith(sent.map(one => one.text).join(''))).toBe(true);
      }),
      { numRuns: 1000, seed: 15 },
    );
  });

  test('case 51: cut exactly before a stop string of one token and of two', () => {
    const alphabet = ['alpha', ' beta', ' gamma', ' delta'].map(text => new TextEncoder().encode(text));
    for (const one of ['beta gamma', 'gamma']) {
      const choice = new ChoiceText({ tokenBytes: id => alphabet[id]!, stop: [one] });
      const out = [0, 1, 2, 3].map(tokenId => choice.push([{ tokenId }]));
      expect(out.map(({ text }) => text).join('')).toBe(one === 'gamma' ? 'alpha beta ' : 'alpha ');
      expect(out.at(-1)!.stopped).toBe(true);
    }
  });

  test('a character cut by the length limit is left out; one that the model left unfinished is U+FFFD', () => {
    const half = vocabulary.findIndex(bytes => bytes[0] === 0xf0 && bytes.length === 2);
    const cutByLength = run([0, half], {}, { sizes: [1], reason: 'length' });
    expect(cutByLength.text).toBe('a');
    expect(cutByLength.logprobs.map(entry => entry.bytes)).toEqual([[0x61], [0xf0, 0x9f]]);
    expect(run([0, half], {}, { sizes: [1], reason: 'stop' }).text).toBe('a\u{fffd}');
  });

  test('case 15: entries have text, bytes and alternatives; pieces of characters are written as bytes', () => {
    const choice = new ChoiceText({ tokenBytes });
    const half = vocabulary.findIndex(bytes => bytes[0] === 0xf0 && bytes.length === 2);
    const { logprobs } = choice.push([{ tokenId: 0, logprob: { logprob: -0.5, top: [{ tokenId: half, logprob: -1 }] } }, { tokenId: 1 }]);
    expect(logprobs).toEqual([
      {
        token: 'a',
        tokenId: 0,
        logprob: -0.5,
        bytes: [97],
        top: [{ token: '\\xf0\\x9f', tokenId: half, logprob: -1, bytes: [0xf0, 0x9f] }],
      },
    ]);
  });

  test('an entry waits for its text', () => {
    const choice = new ChoiceText({ tokenBytes, stop: ['STOP'] });
    const st = 8;
    expect(choice.push([sampled(0), sampled(st)])).toMatchObject({ text: 'a', logprobs: [{ tokenId: 0 }] });
    expect(choice.heldTokenCount).toBe(1);
    expect(choice.push([sampled(0)])).toMatchObject({ text: 'STa', logprobs: [{ tokenId: st }, { tokenId: 0 }] });
  });

  test('min_tokens: a stop string in the first tokens does not stop', () => {
    const stopToken = 10;
    expect(run([stopToken, 0, stopToken, 1], { stop: ['STOP'], minTokens: 2 }, { sizes: [1] })).toMatchObject({
      text: 'STOPa',
      stopped: true,
    });
  });

  test('nothing comes after the end', () => {
    const choice = new ChoiceText({ tokenBytes, stop: ['a'] });
    choice.push([sampled(1), sampled(0)]);
    expect(choice.push([sampled(1)])).toEqual({ text: '', stopped: true, logprobs: [] });
    expect(choice.end('stop')).toEqual({ text: '', stopped: true, logprobs: [] });
  });
});
