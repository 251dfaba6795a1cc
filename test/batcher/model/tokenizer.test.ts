import { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers';
import fc from 'fast-check';
import { beforeAll, describe, expect, test } from 'vitest';
import { mergeTable } from '../../../batcher/model/merge-table.ts';
import { preTokenizerOf } from '../../../batcher/model/pre-tokenizer.ts';
import { mergesFromScores } from '../../../batcher/model/sentencepiece-merges.ts';
import { loadTokenizer, Tokenizer } from '../../../batcher/model/tokenizer.ts';
import { TOKEN_KINDS, type Vocabulary } from '../../../batcher/model/vocabulary.ts';
import { preparedDefaultModel } from './default-model.ts';

const anyText = fc.string({ unit: 'binary', maxLength: 200 });
/** Words, runs of white space, digits, spellings of control tokens: what the patterns and merges meet. */
const busyText = fc
  .array(
    fc.oneof(
      fc.constantFrom(
        'hello',
        ' world',
        '  ',
        '\n',
        '\r\n',
        '\t',
        '123',
        "don't",
        '<|im_end|>',
        '<s>',
        '▁',
        'é',
        '漢字',
        '😀',
        '\u0085',
        '\ufeff',
      ),
      anyText,
    ),
  )
  .map(parts => parts.join(''));

function isWritable(codePoint: number): boolean {
  return ![0x04, 0x06, 0x13, 0x14, 0x16, 0x1d].includes(codePoint) && !(codePoint >= 0x40000 && codePoint <= 0xbffff);
}

function joinedBytes(tokenizer: Tokenizer, ids: readonly number[]): Buffer {
  return Buffer.concat(ids.map(id => tokenizer.tokenBytes(id)));
}

describe('the default model’s byte-level vocabulary', () => {
  let tokenizer: Tokenizer;
  beforeAll(async () => {
    tokenizer = await loadTokenizer((await preparedDefaultModel()).directory);
  });

  test('the bytes of the tokens of any text are its UTF-8', () => {
    fc.assert(
      fc.property(busyText, text => {
        const ids = tokenizer.encodeText(text);
        // Bytes that the vocabulary has no token for: some control characters, planes that Unicode has not assigned.
        const writable = Array.from(text, character => (isWritable(character.codePointAt(0)!) ? character : '\ufffd')).join('');
        expect(joinedBytes(tokenizer, ids)).toEqual(Buffer.from(writable));
        expect(ids.some(id => tokenizer.isControl(id))).toBe(false);
      }),
      { numRuns: 300 },
    );
  });

  test('the same tokens as the library’s own encoder', () => {
    const { vocabulary } = tokenizer;
    const split = (pattern: string): object => ({ type: 'Split', pattern: { Regex: pattern }, behavior: 'Isolated', invert: false });
    const pretokenizers = [
      ...preTokenizerOf('smollm', 'test').patterns.map(split),
      { type: 'ByteLevel', add_prefix_space: false, use_regex: false },
    ];
    const vocab = Object.fromEntries(vocabulary.tokens.map((text, id) => [text, id]));
    const merges = Array.from({ length: vocabulary.merges.length / 3 }, (_, i) =>
      [0, 1].map(part => vocabulary.tokens[vocabulary.merges[3 * i + part]!]!),
    );
    const library = new LibraryTokenizer(
      {
        added_tokens: [],
        normalizer: null,
        pre_tokenizer: { type: 'Sequence', pretokenizers },
        post_processor: null,
        decoder: null,
        model: { type: 'BPE', vocab, merges, unk_token: null },
      },
      {},
    );
    const letters = fc.string({ unit: fc.constantFrom(...'aeinrst hl\n.'), maxLength: 400 });
    fc.assert(
      fc.property(fc.oneof(busyText, letters), text => {
        const writable = Array.from(text, character => (isWritable(character.codePointAt(0)!) ? character : '\ufffd')).join('');
        expect(tokenizer.encodeText(text)).toEqual(library.encode(writable).ids);
      }),
      { numRuns: 300 },
    );
  });

  test('half a surrogate pair becomes U+FFFD', () => {
    expect(tokenizer.decode(tokenizer.encodeText('a\ud83d'))).toBe('a\ufffd');
  });

  test('control tokens are recognised in prompts and not in content', () => {
    expect(tokenizer.encodeText('<|im_end|>')).not.toContain(2);
    expect(tokenizer.encodeRendered('x<|im_end|>')).toEqual([...tokenizer.encodeText('x'), 2]);
    expect(tokenizer.encodePrompt('<|im_start|>')).toEqual([1]);
  });

  test('knows its tokens', () => {
    expect(tokenizer.endTokenIds).toEqual([0, 2]);
    expect(tokenizer).toMatchObject({ vocabSize: 49_152, bosTokenId: 1, addBos: false });
    expect(tokenizer.tokenText(2)).toBe('<|im_end|>');
    expect(tokenizer.tokenBytes(2)).toHaveLength(0);
    expect(tokenizer.tokenBytes(2, 'spelled')).toHaveLength(10);
    expect(tokenizer.tokenBytes(60_000)).toHaveLength(0);
  });

  test('a text of many bytes takes at least as many tokens as the bound says', () => {
    fc.assert(
      fc.property(busyText, text => tokenizer.encodeText(text).length >= Buffer.byteLength(text) / tokenizer.longestTokenBytes),
      { numRuns: 50 },
    );
  });
});

/** <unk>, <s>, </s>, all bytes, then pieces with falling scores. */
function sentencePieceVocabulary(
  overrides: Partial<Vocabulary> = {},
  extraPieces: readonly string[] = [],
): { vocabulary: Vocabulary; scores: Map<string, number> } {
  const bytes = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`);
  const words = [
    '▁▁',
    '▁t',
    'he',
    '▁the',
    'er',
    'in',
    '▁a',
    're',
    '▁there',
    'll',
    'ell',
    'hell',
    '▁hello',
    'hello',
    'lo',
    'wor',
    'ld',
    '▁world',
    'aa',
    'aaaa',
    '▁▁▁▁',
    ...extraPieces,
  ];
  const letters = ['▁', ...'etaoinshrdlcumwfgypbvkjxqz', ...'HWé漢<|>_s/', '😀'];
  const pieces = [...words, ...new Set(letters)];
  const tokens = ['<unk>', '<s>', '</s>', ...bytes, ...pieces];
  const kinds = tokens.map((_, id) =>
    id === 0 ? TOKEN_KINDS.unknown : id < 3 ? TOKEN_KINDS.control : id < 259 ? TOKEN_KINDS.byte : TOKEN_KINDS.normal,
  );
  const scores = new Map(pieces.map((piece, i) => [piece, -i]));
  const vocabulary: Vocabulary = {
    kind: 'sentencepiece',
    preTokenizer: undefined,
    tokens,
    kinds,
    merges: mergeTable(
      new Map(pieces.map(piece => [piece, tokens.indexOf(piece)])),
      mergesFromScores(pieces.map(text => ({ text, score: scores.get(text)! }))),
    ),
    addSpacePrefix: true,
    bosTokenId: 1,
    eosTokenId: 2,
    addBos: true,
    unknownTokenId: 0,
    endTokenIds: [2],
    chatTemplates: {},
    ...overrides,
  };
  return { vocabulary, scores };
}

/** SentencePiece's rule, word for word: join the neighbours whose union scores best, leftmost first, until none is a piece. */
function directMerge(text: string, scores: ReadonlyMap<string, number>, tokens: readonly string[]): number[] {
  const symbols = [...text];
  for (;;) {
    let best = -1;
    for (let i = 0; i + 1 < symbols.length; i++) {
      const score = scores.get(symbols[i]! + symbols[i + 1]!);
      if (score !== undefined && (best === -1 || score > scores.get(symbols[best]! + symbols[best + 1]!)!)) best = i;
    }
    if (best === -1) break;
    symbols.splice(best, 2, symbols[best]! + symbols[best + 1]!);
  }
  return symbols.flatMap(symbol => (scores.has(symbol) ? [tokens.indexOf(symbol)] : [...Buffer.from(symbol)].map(byte => byte + 3)));
}

describe('a SentencePiece vocabulary', () => {
  const { vocabulary, scores } = sentencePieceVocabulary();
  const tokenizer = new Tokenizer(vocabulary);

  test('gives the tokens of SentencePiece’s own rule', () => {
    const texts = fc
      .array(fc.constantFrom('hello', ' world', ' there', ' ', 'a', 'aaa', 'the', 'é', '漢', '字', '😀', '\n', '▁'))
      .map(parts => parts.join(''));
    fc.assert(
      fc.property(texts, text => {
        const expected = text === '' ? [] : directMerge(` ${text}`.replaceAll(' ', '▁'), scores, vocabulary.tokens);
        expect(tokenizer.encodeText(text)).toEqual(expected);
      }),
      { numRuns: 300 },
    );
  });

  test('the same where a piece holds a space after another character', () => {
    const crossing = sentencePieceVocabulary({}, ['o▁', 'o▁w']);
    const crosser = new Tokenizer(crossing.vocabulary);
    const expected = directMerge('▁hello▁world', crossing.scores, crossing.vocabulary.tokens);
    expect(crosser.encodeText('hello world')).toEqual(expected);
  });

  test('any text comes back, with a space in front', () => {
    fc.assert(
      fc.property(busyText, text => {
        const bytes = joinedBytes(tokenizer, tokenizer.encodeText(text));
        // The piece for a space is also how the character U+2581 itself is read.
        expect(bytes.toString()).toBe((text === '' ? '' : ` ${text}`).replaceAll('▁', ' '));
      }),
    );
  });

  test('without the prefix rule the text comes back as it is', () => {
    const plain = new Tokenizer(sentencePieceVocabulary({ addSpacePrefix: false }).vocabulary);
    expect(plain.decode(plain.encodeText('hello world'))).toBe('hello world');
  });

  test('control tokens never come out of content', () => {
    expect(tokenizer.encodeText('</s><s>').some(id => tokenizer.isControl(id))).toBe(false);
    expect(tokenizer.encodeRendered('</s>')).toEqual([2]);
  });

  test('case 54: a prompt has exactly one BOS, whether or not it spells it', () => {
    const hello = tokenizer.encodeText('hello');
    expect(tokenizer.encodePrompt('hello')).toEqual([1, ...hello]);
    expect(tokenizer.encodePrompt('<s>hello')).toEqual([1, ...hello]);
    expect(tokenizer.encodePrompt('<s><s>hello')).toEqual([1, ...hello]);
    expect(tokenizer.encodePrompt('')).toEqual([1]);
  });
});

describe('user-defined tokens', () => {
  const { vocabulary } = sentencePieceVocabulary();
  const id = vocabulary.tokens.length;
  const tokenizer = new Tokenizer({
    ...vocabulary,
    tokens: [...vocabulary.tokens, '<tool>'],
    kinds: [...vocabulary.kinds, TOKEN_KINDS.userDefined],
  });

  test('are whole in content and in prompts, and show their spelling', () => {
    expect(tokenizer.encodeText('<tool>')).toEqual([id]);
    expect(tokenizer.encodePrompt('<tool>')).toEqual([1, id]);
    expect(tokenizer.isControl(id)).toBe(false);
    expect(tokenizer.tokenText(id)).toBe('<tool>');
  });
});
