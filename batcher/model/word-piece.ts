/**
 * WordPiece: text to the pieces of a BERT vocabulary and back. A control token that is spelled in a text is text like any other.
 *
 * Text is cleaned, cut into words at white space and around punctuation, and each word into the longest pieces from its beginning; one that
 * cannot be cut so is unknown as a whole. Reading ends as soon as there are as many tokens as are wanted.
 *
 * Source: BERT's own tokenizer, and the tokenizers library's reading of it.
 */
import type { EncoderVocabulary } from './encoder-vocabulary.ts';

/** Control and format characters, private use: left out, unless they part lines or columns. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\ufffd]/u;
const LINE_OR_COLUMN = /[\t\n\r]/;
const SPACE = /\s/u;
/** Most of most texts. */
const PLAIN = /^[0-9A-Za-z]$/;
/** Of ASCII all signs, also those that Unicode does not count as punctuation. */
const PUNCTUATION = /[\p{P}!-/:-@[-`{-~]/u;
const ACCENT = /\p{Mn}/u;
const CJK_RANGES: readonly (readonly [number, number])[] = [
  ...([
    [0x4e00, 0x9fff],
    [0x3400, 0x4dbf],
    [0x20000, 0x2a6df],
    [0x2a700, 0x2b73f],
  ] as const),
  ...([
    [0x2b740, 0x2b81f],
    [0x2b920, 0x2ceaf],
    [0xf900, 0xfaff],
    [0x2f800, 0x2fa1f],
  ] as const),
];
const CONTINUED = '##';

const LONGEST_CACHED = 32;
const MOST_CACHED = 16_384;

export class WordPiece {
  readonly vocabulary: EncoderVocabulary;
  readonly #ids: ReadonlyMap<string, number>;
  readonly #controls: ReadonlySet<number>;
  readonly #longestPiece: number;
  readonly #cache = new Map<string, readonly number[]>();

  constructor(vocabulary: EncoderVocabulary) {
    this.vocabulary = vocabulary;
    this.#controls = new Set(vocabulary.controlIds);
    const plain = [...vocabulary.pieces.entries()].filter(([id, piece]) => piece !== '' && !this.#controls.has(id));
    this.#ids = new Map(plain.map(([id, piece]) => [piece, id]));
    this.#longestPiece = plain.reduce((longest, [, piece]) => Math.max(longest, Array.from(piece).length), 1);
  }

  get size(): number {
    return this.vocabulary.pieces.length;
  }

  /** With what stands around each text, unless it is not wanted; of more than `most` tokens at least one more than that is told. */
  encode(text: string, { addSpecialTokens = true, most = Number.POSITIVE_INFINITY } = {}): number[] {
    const { beginId, endId } = this.vocabulary;
    const ids = addSpecialTokens ? [beginId] : [];
    for (const word of this.#words(text)) {
      this.#encodeWord(word, ids);
      if (ids.length > most) break;
    }
    if (addSpecialTokens) ids.push(endId);
    return ids;
  }

  /** The first tokens of a text, so many in all, with what stands around it. */
  truncated(tokenIds: readonly number[], most: number): readonly number[] {
    if (tokenIds.length <= most) return tokenIds;
    return [...tokenIds.slice(0, Math.max(0, most - 1)), this.vocabulary.endId];
  }

  /** A piece as it is written: `##` in front of one that goes on with a word. */
  piece(id: number): string {
    return this.vocabulary.pieces[id] ?? '';
  }

  /** Words with spaces between them; where they stood is not known any more. */
  decode(ids: readonly number[]): string {
    let text = '';
    for (const id of ids) {
      const piece = this.piece(id);
      if (piece.startsWith(CONTINUED) && text !== '' && !this.#controls.has(id)) text += piece.slice(CONTINUED.length);
      else text += (text === '' ? '' : ' ') + piece;
    }
    return text.replaceAll(/ (?=[.?!,])/g, '').replaceAll(/ (?=(?:n't|'m|'s|'ve|'re)\b)/g, '');
  }

  /** Runs of white space part words; each sign is a word, and so is each CJK character where the vocabulary says so. */
  *#words(text: string): Generator<string> {
    const { lowercase, stripAccents, splitsCjk } = this.vocabulary;
    let word = '';
    for (const raw of text) {
      if (PLAIN.test(raw)) {
        word += lowercase ? raw.toLowerCase() : raw;
        continue;
      }
      const isSpace = LINE_OR_COLUMN.test(raw) || (SPACE.test(raw) && !UNSEEN.test(raw));
      if (!isSpace && UNSEEN.test(raw)) continue;
      const isAlone = splitsCjk && isCjk(raw.codePointAt(0)!);
      if ((isSpace || isAlone) && word !== '') {
        yield word;
        word = '';
      }
      if (isSpace) continue;
      for (const apart of stripAccents ? raw.normalize('NFD') : raw) {
        if (stripAccents && ACCENT.test(apart)) continue;
        for (const character of lowercase ? apart.toLowerCase() : apart) {
          if (!PUNCTUATION.test(character)) {
            word += character;
            continue;
          }
          if (word !== '') yield word;
          word = '';
          yield character;
        }
      }
      if (isAlone && word !== '') {
        yield word;
        word = '';
      }
    }
    if (word !== '') yield word;
  }

  #encodeWord(word: string, into: number[]): void {
    if (word.length > LONGEST_CACHED) {
      into.push(...this.#cut(word));
      return;
    }
    let ids = this.#cache.get(word);
    if (ids === undefined) {
      ids = this.#cut(word);
      if (this.#cache.size >= MOST_CACHED) this.#cache.clear();
      this.#cache.set(word, ids);
    }
    for (const id of ids) into.push(id);
  }

  #cut(word: string): number[] {
    const { unknownId, longestWord } = this.vocabulary;
    const characters = word.length > 2 * longestWord ? [] : Array.from(word);
    if (characters.length === 0 || characters.length > longestWord) return [unknownId];
    const ids: number[] = [];
    for (let start = 0; start < characters.length; ) {
      const prefix = start === 0 ? '' : CONTINUED;
      let end = Math.min(characters.length, start + this.#longestPiece);
      let id: number | undefined;
      while (end > start && id === undefined) {
        id = this.#ids.get(prefix + characters.slice(start, end).join(''));
        if (id === undefined) end--;
      }
      if (id === undefined) return [unknownId];
      ids.push(id);
      start = end;
    }
    return ids;
  }
}

function isCjk(code: number): boolean {
  return CJK_RANGES.some(([first, last]) => code >= first && code <= last);
}
