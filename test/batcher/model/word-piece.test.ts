/** WordPiece: text as BERT's own tokenizer cuts it; the cases of many languages are in test/e2e/embeddings, with the real vocabulary. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { EncoderVocabulary } from '../../../batcher/model/encoder-vocabulary.ts';
import { WordPiece } from '../../../batcher/model/word-piece.ts';
import { TINY_PIECES } from './tiny-encoder.ts';

const VOCABULARY: EncoderVocabulary = {
  ...{ pieces: TINY_PIECES, lowercase: true, stripAccents: true, splitsCjk: true, longestWord: 6 },
  ...{ unknownId: 1, beginId: 2, endId: 3, controlIds: [0, 1, 2, 3, 4] },
};
const words = new WordPiece(VOCABULARY);
const pieces = (text: string, more: Partial<EncoderVocabulary> = {}) =>
  new WordPiece({ ...VOCABULARY, ...more })
    .encode(text, { addSpecialTokens: false })
    .map(id => TINY_PIECES[id])
    .join(' ');

describe('cuts', () => {
  test.each([
    ['abc', 'ab ##c'],
    ['ABC', 'ab ##c'],
    ['a b\tc\r\nd', 'a b c d'],
    ['a.b!', 'a . b !'],
    ['á', 'a'],
    ['a\u0301', 'a'],
    ['漢漢a', '漢 漢 a'],
    ['a漢b', 'a 漢 b'],
    ['a\u200bb\ufeff\x01\ufffdc', 'ab ##c'],
    ['az', '[UNK]'],
    ['z a', '[UNK] a'],
    ['abbbbb', 'ab ##b ##b ##b ##b'],
    ['abbbbbb', '[UNK]'],
    ['', ''],
    [' \n ', ''],
    // Of users' making, so no control token.
    ['[SEP]', '[UNK] [UNK] [UNK]'],
    ['[CLS] a', '[UNK] [UNK] [UNK] a'],
  ])('%j', (text, cut) => {
    expect(pieces(text)).toBe(cut);
  });

  test('as the vocabulary says', () => {
    expect(pieces('A', { lowercase: false })).toBe('[UNK]');
    expect(pieces('á', { stripAccents: false })).toBe('[UNK]');
    expect(pieces('漢a', { splitsCjk: false })).toBe('漢 ##a');
  });
});

test('what stands around a text, and what is left of a long one', () => {
  expect(words.encode('a b')).toEqual([2, 5, 6, 3]);
  expect(words.truncated(words.encode('a b c d'), 4)).toEqual([2, 5, 6, 3]);
  expect(words.truncated([2, 5, 3], 4)).toEqual([2, 5, 3]);
  // Reading stops when there is more than enough.
  expect(words.encode('a '.repeat(1_000), { most: 5 }).length).toBe(7);
});

test('back to text', () => {
  expect(words.decode(words.encode('ab abc . the car!'))).toBe('[CLS] ab abc. the car! [SEP]');
});

test('any text becomes tokens of the vocabulary, and control tokens never', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 60 }), text => {
      for (const id of words.encode(text, { addSpecialTokens: false })) {
        expect(id < TINY_PIECES.length && (id === 1 || id > 4)).toBe(true);
      }
    }),
  );
});
