/**
 * PromptLookup: guesses the next tokens of a sequence from its own past: what followed the last time its current end (of 4, else 3, else 2 tokens)
 * occurred (Saxena: Prompt Lookup Decoding, 2023). Each token costs the same few map operations however long the sequence is.
 */

/** Longest and shortest end that is looked for, in tokens. One token alone recurs too often to foretell anything. */
const LONGEST = 4;
const SHORTEST = 2;
const LENGTHS = LONGEST - SHORTEST + 1;
/** Map keys stay small integers, which the engine keeps unboxed. */
const KEY_BITS = 30;

export class PromptLookup {
  readonly #tokens: number[] = [];
  /** Per length of end, from the shortest: hash of an n-gram to the number of tokens up to and with its last occurrence. */
  readonly #lastEnds: Map<number, number>[] = Array.from({ length: LENGTHS }, () => new Map<number, number>());
  /** Per length: where the sequence's current end occurred before, in the same count; 0 for nowhere. */
  readonly #earlierEnds: number[] = new Array<number>(LENGTHS).fill(0);

  constructor(promptTokenIds: readonly number[]) {
    for (const tokenId of promptTokenIds) this.append(tokenId);
  }

  get tokenCount(): number {
    return this.#tokens.length;
  }

  append(tokenId: number): void {
    const tokens = this.#tokens;
    tokens.push(tokenId);
    let hash = 0;
    for (let length = 1; length <= LONGEST && length <= tokens.length; length++) {
      hash = Math.imul(hash ^ tokens[tokens.length - length]!, 0x9e3779b1);
      hash ^= hash >>> 15;
      if (length < SHORTEST) continue;
      const ends = this.#lastEnds[length - SHORTEST]!;
      const key = hash >>> (32 - KEY_BITS);
      this.#earlierEnds[length - SHORTEST] = ends.get(key) ?? 0;
      ends.set(key, tokens.length);
    }
  }

  /**
   * Up to `count` tokens that may come next; none where the end is new. Where the earlier occurrence runs into the present, the guess goes on
   * repeating itself.
   */
  propose(count: number): number[] {
    const from = this.#continuation();
    if (from === undefined || count <= 0) return [];
    const draft: number[] = [];
    for (let i = 0; i < count; i++) {
      const at = from + i;
      draft.push(at < this.#tokens.length ? this.#tokens[at]! : draft[at - this.#tokens.length]!);
    }
    return draft;
  }

  /** Index of the token that followed the longest end that occurred before. */
  #continuation(): number | undefined {
    for (let length = LONGEST; length >= SHORTEST; length--) {
      const end = this.#earlierEnds[length - SHORTEST]!;
      if (end > 0 && this.#isSame(end, length)) return end;
    }
    return undefined;
  }

  /** Whether the `length` tokens before `end` are those at the end of the sequence: hashes may collide. */
  #isSame(end: number, length: number): boolean {
    const tokens = this.#tokens;
    for (let back = 1; back <= length; back++) if (tokens[end - back] !== tokens[tokens.length - back]) return false;
    return true;
  }
}
