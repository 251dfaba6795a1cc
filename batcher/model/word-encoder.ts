/**
 * WordEncoder: plain text without special tokens to token ids: cut into words by the vocabulary's patterns, then merged word by word.
 * The patterns are written for the regular expressions of the Rust tokenizers; @huggingface/tokenizers translates them.
 */
import * as tokenizers from '@huggingface/tokenizers';
import { characterOfByte, unwritableCharacters } from './byte-alphabet.ts';
import { PairMerger } from './pair-merger.ts';
import { preTokenizerOf } from './pre-tokenizer.ts';
import { isMergeable, type Vocabulary } from './vocabulary.ts';

export interface WordEncoder {
  /** Appends the ids of the text, which is well-formed and not empty. */
  encode(text: string, into: number[]): void;
}

/** `<0x41>`; longer than any character. */
const BYTE_TOKEN_LENGTH = 6;

/** SentencePiece writes a space as this. */
const SPACE = '\u2581';

export function createWordEncoder(vocabulary: Vocabulary): WordEncoder {
  return vocabulary.kind === 'byte-level' ? new ByteLevelEncoder(vocabulary) : new SentencePieceEncoder(vocabulary);
}

/** Ids of the tokens that merging starts from or gives, of at most so many UTF-16 units. */
function mergeableIds({ tokens, kinds }: Vocabulary, longest: number): ReadonlyMap<string, number> {
  const ids = new Map<string, number>();
  for (let id = 0; id < tokens.length; id++) if (tokens[id]!.length <= longest && isMergeable(kinds[id]!)) ids.set(tokens[id]!, id);
  return ids;
}

class ByteLevelEncoder implements WordEncoder {
  readonly #patterns: readonly Splitter[];
  readonly #merger: PairMerger;
  /** Id of each byte's token; bytes without one do not occur in writable text. */
  readonly #byteIds: Int32Array;
  /** Whole words that are tokens, where those come before merges. */
  readonly #wholeWords: ReadonlyMap<string, number> | undefined;
  readonly #unwritable: RegExp | undefined;
  readonly #words = new WordCache();

  constructor(vocabulary: Vocabulary) {
    const { patterns, ignoresMerges } = preTokenizerOf(vocabulary.preTokenizer, 'the vocabulary');
    this.#patterns = patterns.map(splitter);
    this.#merger = new PairMerger(vocabulary.merges, vocabulary.tokens.length);
    const ids = mergeableIds(vocabulary, ignoresMerges ? Number.POSITIVE_INFINITY : 1);
    this.#byteIds = Int32Array.from({ length: 256 }, (_, byte) => ids.get(characterOfByte(byte)) ?? MISSING);
    this.#wholeWords = ignoresMerges ? ids : undefined;
    this.#unwritable = unwritableCharacters(ids);
  }

  encode(text: string, into: number[]): void {
    let words = [this.#unwritable === undefined ? text : text.replace(this.#unwritable, '\ufffd')];
    for (const pattern of this.#patterns) words = words.flatMap(word => pattern.pre_tokenize_text(word));
    for (const word of words) this.#words.encode(word, into, this.#encodeWord);
  }

  readonly #encodeWord = (word: string, into: number[]): void => {
    const bytes = Buffer.from(word);
    if (this.#wholeWords !== undefined) {
      const whole = this.#wholeWords.get(Array.from(bytes, characterOfByte).join(''));
      if (whole !== undefined) {
        into.push(whole);
        return;
      }
    }
    const start = into.length;
    this.#merger.merge(
      Int32Array.from(bytes, byte => this.#byteIds[byte]!),
      into,
    );
    // Only where a vocabulary lacks even what U+FFFD needs.
    for (let at = into.length - 1; at >= start; at--) if (into[at] === MISSING) into.splice(at, 1);
  };
}

const MISSING = -1;

class SentencePieceEncoder implements WordEncoder {
  readonly #pattern: Splitter | undefined;
  readonly #merger: PairMerger;
  readonly #ids: ReadonlyMap<string, number>;
  /** Undefined where the vocabulary has not all bytes. */
  readonly #byteIds: readonly number[] | undefined;
  readonly #unknownTokenId: number | undefined;
  readonly #addSpacePrefix: boolean;
  readonly #words = new WordCache();

  constructor(vocabulary: Vocabulary) {
    this.#pattern = wordsBetweenSpaces(vocabulary.tokens);
    this.#merger = new PairMerger(vocabulary.merges, vocabulary.tokens.length);
    const ids = mergeableIds(vocabulary, BYTE_TOKEN_LENGTH);
    this.#ids = ids;
    const byteIds = Array.from({ length: 256 }, (_, byte) => ids.get(`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`));
    this.#byteIds = byteIds.every(id => id !== undefined) ? byteIds : undefined;
    this.#unknownTokenId = vocabulary.unknownTokenId;
    this.#addSpacePrefix = vocabulary.addSpacePrefix;
  }

  encode(text: string, into: number[]): void {
    const spaced = (this.#addSpacePrefix ? ` ${text}` : text).replaceAll(' ', SPACE);
    for (const word of this.#pattern?.pre_tokenize_text(spaced) ?? [spaced]) this.#words.encode(word, into, this.#encodeWord);
  }

  readonly #encodeWord = (word: string, into: number[]): void => {
    const characters = Array.from(word);
    // A character that is no piece goes through the merger by its place, as a number below 0.
    const symbols = Int32Array.from(characters, (character, place) => this.#ids.get(character) ?? -1 - place);
    const merged: number[] = [];
    this.#merger.merge(symbols, merged);
    for (const id of merged) {
      if (id >= 0) into.push(id);
      else this.#encodeUnknown(characters[-1 - id]!, into);
    }
  };

  #encodeUnknown(character: string, into: number[]): void {
    if (this.#byteIds !== undefined) for (const byte of Buffer.from(character)) into.push(this.#byteIds[byte]!);
    else if (this.#unknownTokenId !== undefined) into.push(this.#unknownTokenId);
  }
}

/** Most words of a text come again; bounded by count and by word length, emptied when full. */
class WordCache {
  readonly #entries = new Map<string, readonly number[]>();

  encode(word: string, into: number[], encodeWord: (word: string, into: number[]) => void): void {
    if (word.length > LONGEST_CACHED) {
      encodeWord(word, into);
      return;
    }
    let ids = this.#entries.get(word);
    if (ids === undefined) {
      const fresh: number[] = [];
      encodeWord(word, fresh);
      ids = fresh;
      if (this.#entries.size >= MOST_CACHED) this.#entries.clear();
      this.#entries.set(word, ids);
    }
    for (const id of ids) into.push(id);
  }
}

const LONGEST_CACHED = 32;
const MOST_CACHED = 16_384;

interface Splitter {
  pre_tokenize_text(text: string): string[];
}

/** The library's declarations do not resolve under Node's module rules; this much of them is used here. */
const { SplitPreTokenizer } = tokenizers as unknown as { SplitPreTokenizer: new (settings: object) => Splitter };

/** What a pattern matches are words, and what lies between its matches too. */
function splitter(pattern: string): Splitter {
  return new SplitPreTokenizer({ type: 'Split', pattern: { Regex: pattern }, behavior: 'Isolated', invert: false });
}

/**
 * SentencePiece merges a text as one word. Where no piece has a space after another character, no merge crosses from a character to a
 * space, and cutting there first gives the same tokens, faster.
 */
function wordsBetweenSpaces(tokens: readonly string[]): Splitter | undefined {
  const crosses = new RegExp(`[^${SPACE}]${SPACE}`);
  if (tokens.some(token => crosses.test(token))) return undefined;
  return splitter(`${SPACE}*[^${SPACE}]+|${SPACE}+`);
}
