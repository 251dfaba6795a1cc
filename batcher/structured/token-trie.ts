/**
 * TokenTrie: tokens by their bytes, as a tree written in the order of a walk: a node is followed by its subtree, so that a walk is a loop that
 * skips what does not fit.
 */
export interface SpelledToken {
  id: number;
  /** At least one. */
  bytes: Uint8Array;
}

/** The tree alone, which threads can hand over. */
export type TokenTree = Pick<TokenTrie, 'byteAt' | 'depthAt' | 'endAt' | 'tokenAt'>;

export class TokenTrie {
  /** Per node: its byte, its depth from 1, the node behind its subtree, its token or -1. */
  readonly byteAt: Uint8Array;
  readonly depthAt: Uint16Array;
  readonly endAt: Int32Array;
  readonly tokenAt: Int32Array;
  /** By token id: another token of the same bytes, or -1. */
  readonly twinOf: Int32Array;
  readonly maxDepth: number;

  constructor(tokens: readonly SpelledToken[], vocabSize: number) {
    this.twinOf = new Int32Array(vocabSize).fill(-1);
    const sorted = tokens.toSorted((a, b) => Buffer.compare(a.bytes, b.bytes) || a.id - b.id);
    const most = sorted.reduce((sum, { bytes }) => sum + bytes.length, 0);
    const nodes = {
      byteAt: new Uint8Array(most),
      depthAt: new Uint16Array(most),
      endAt: new Int32Array(most),
      tokenAt: new Int32Array(most).fill(-1),
    };
    this.maxDepth = sorted.reduce((deepest, { bytes }) => Math.max(deepest, bytes.length), 0);
    /** The nodes that lead to the last token, by depth. */
    const path = new Int32Array(this.maxDepth + 1);
    let depth = 0;
    let count = 0;
    let last: SpelledToken | undefined;
    const close = (to: number): void => {
      for (; depth > to; depth--) nodes.endAt[path[depth]!] = count;
    };
    for (const token of sorted) {
      const { bytes } = token;
      const common = last === undefined ? 0 : commonLength(bytes, last.bytes);
      if (last !== undefined && common === bytes.length && common === last.bytes.length) {
        this.twinOf[token.id] = this.twinOf[last.id]!;
        this.twinOf[last.id] = token.id;
        continue;
      }
      close(common);
      while (depth < bytes.length) {
        nodes.byteAt[count] = bytes[depth]!;
        path[++depth] = count;
        nodes.depthAt[count++] = depth;
      }
      nodes.tokenAt[count - 1] = token.id;
      last = token;
    }
    close(0);
    this.byteAt = nodes.byteAt.slice(0, count);
    this.depthAt = nodes.depthAt.slice(0, count);
    this.endAt = nodes.endAt.slice(0, count);
    this.tokenAt = nodes.tokenAt.slice(0, count);
  }

  get nodeCount(): number {
    return this.byteAt.length;
  }
}

function commonLength(a: Uint8Array, b: Uint8Array): number {
  let length = 0;
  while (length < a.length && length < b.length && a[length] === b[length]) length++;
  return length;
}
