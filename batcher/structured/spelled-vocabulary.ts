/**
 * SpelledVocabulary: a model's tokens by what they spell, as masks are made of them. Most tokens are plain characters only, and most places of a
 * structured text take either any plain character or none: those tokens are kept as ready masks by their length, the rest as a small tree.
 * Control tokens spell nothing and are in none of it.
 */
import { CodePointSet } from './text/code-point-set.ts';
import { type ByteRange, utf8Ranges } from './text/utf8-ranges.ts';
import { type SpelledToken, type TokenTree, TokenTrie } from './token-trie.ts';

export interface VocabularySource {
  vocabSize: number;
  endTokenIds: readonly number[];
  /** Empty for control tokens. */
  tokenBytes(id: number): Uint8Array;
}

/** What compiling a structure needs to know of a vocabulary: plain data. */
export interface Spelling {
  /** 1 for each byte that is a token alone. */
  writable: Uint8Array;
  all: TokenTree;
}

/** What may end or change a text in most grammars is not plain: quotes, backslashes, controls, and the beginnings of tags and calls. */
const PLAIN = CodePointSet.of([0x20, 0x10ffff]).minus(CodePointSet.from('"\\<[{\x7f'));
/** Longer tokens are few, and each length takes a mask. */
const LONGEST_PLAIN = 24;
const STRICT = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

export class SpelledVocabulary {
  readonly vocabSize: number;
  readonly endTokenIds: readonly number[];
  readonly all: TokenTrie;
  /** All but the plain ones. */
  readonly rest: TokenTrie;
  /** [n]: tokens of at most n plain characters. The last has them all. */
  readonly plainMasks: readonly Uint32Array[];
  readonly plainCounts: readonly number[];
  /** 1 for each byte that is a token alone. */
  readonly writable = new Uint8Array(256);
  /** The UTF-8 of plain characters, of writable bytes only. */
  readonly plainBytes: readonly (readonly ByteRange[])[];
  readonly #tokenBytes: (id: number) => Uint8Array;

  constructor(source: VocabularySource) {
    const { vocabSize, endTokenIds } = source;
    this.vocabSize = vocabSize;
    this.endTokenIds = endTokenIds;
    this.#tokenBytes = id => source.tokenBytes(id);
    const tokens: SpelledToken[] = [];
    for (let id = 0; id < vocabSize; id++) {
      const bytes = source.tokenBytes(id);
      if (bytes.length > 0) tokens.push({ id, bytes });
      if (bytes.length === 1) this.writable[bytes[0]!] = 1;
    }
    this.plainBytes = utf8Ranges(PLAIN).flatMap(ranges => writableParts(ranges, this.writable));
    const lengths = new Map(tokens.map(token => [token, this.#plainLength(token.bytes)]));
    this.all = new TokenTrie(tokens, vocabSize);
    this.rest = new TokenTrie(
      tokens.filter(token => lengths.get(token) === undefined),
      vocabSize,
    );
    const longest = Math.max(0, ...Array.from(lengths.values(), length => length ?? 0));
    this.plainCounts = Array.from({ length: longest + 1 }, () => 0);
    const masks = this.plainCounts.map(() => this.emptyMask());
    const counts = this.plainCounts as number[];
    for (const [{ id }, length] of lengths) {
      for (let n = length ?? longest + 1; n <= longest; n++) {
        masks[n]![id >>> 5]! |= 1 << (id & 31);
        counts[n]!++;
      }
    }
    this.plainMasks = masks;
  }

  emptyMask(): Uint32Array {
    return new Uint32Array(Math.ceil(this.vocabSize / 32));
  }

  bytesOf(tokenId: number): Uint8Array {
    return this.#tokenBytes(tokenId);
  }

  /** Characters of a token that is plain and nothing else. */
  #plainLength(bytes: Uint8Array): number | undefined {
    if (bytes.some(byte => this.writable[byte] === 0)) return undefined;
    let text: string;
    try {
      text = STRICT.decode(bytes);
    } catch {
      return undefined;
    }
    let length = 0;
    for (const character of text) {
      if (!PLAIN.has(character.codePointAt(0)!)) return undefined;
      if (++length > LONGEST_PLAIN) return undefined;
    }
    return length;
  }
}

/** The same sequences without the bytes that cannot be written. */
function writableParts(ranges: readonly ByteRange[], writable: Uint8Array): ByteRange[][] {
  let parts: ByteRange[][] = [[]];
  for (const [first, last] of ranges) {
    const runs: ByteRange[] = [];
    for (let byte = first; byte <= last; byte++) {
      if (writable[byte] === 0) continue;
      const before = runs.at(-1);
      if (before !== undefined && before[1] === byte - 1) runs[runs.length - 1] = [before[0], byte];
      else runs.push([byte, byte]);
    }
    parts = parts.flatMap(part => runs.map(run => [...part, run]));
  }
  return parts;
}
