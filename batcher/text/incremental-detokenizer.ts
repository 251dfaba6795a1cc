/**
 * IncrementalDetokenizer: token ids to text, a token at a time; a character spread over several tokens comes out with its last one.
 * The joined text is, for every split, the decoding of the joined bytes.
 */
import { Utf8Decoder } from './utf8-decoder.ts';

/** UTF-8 bytes of a token; empty for tokens that have no text, such as control tokens. */
export type TokenBytes = (tokenId: number) => Uint8Array;

export class IncrementalDetokenizer {
  readonly #tokenBytes: TokenBytes;
  readonly #decoder = new Utf8Decoder();

  constructor(tokenBytes: TokenBytes) {
    this.#tokenBytes = tokenBytes;
  }

  /** Whether bytes of an unfinished character are held back. */
  get isPending(): boolean {
    return this.#decoder.isPending;
  }

  /** Text that the token makes certain. */
  push(tokenId: number): string {
    return this.pieces(tokenId).joined;
  }

  /**
   * The same, with the part that completes what tokens before had begun told apart: `carried` UTF-16 units of `joined`, 0 where nothing was pending,
   * undefined where it still is.
   */
  pieces(tokenId: number): { joined: string; carried: number | undefined } {
    let joined = '';
    let carried: number | undefined = this.isPending ? undefined : 0;
    for (const byte of this.#tokenBytes(tokenId)) {
      const text = this.#decoder.push(byte);
      joined += text;
      // U+FFFD, or the whole character: the first unit or pair that comes is what was begun.
      if (carried === undefined && text !== '') carried = text.codePointAt(0)! > 0xffff ? 2 : 1;
    }
    return { joined, carried };
  }

  /** No more tokens: U+FFFD where a character is unfinished. */
  flush(): string {
    return this.#decoder.flush();
  }
}
