/**
 * Utf8Decoder: bytes to text, a few at a time. Whole characters come out as soon as they are certain, an invalid sequence as U+FFFD as soon as it
 * is certain to be one; the joined text is, for every split, what TextDecoder gives for the whole (Encoding Standard, section "UTF-8 decoder").
 */
const REPLACEMENT = '\u{FFFD}';

export class Utf8Decoder {
  /** Continuation bytes that the character begun still needs. */
  #needed = 0;
  #codePoint = 0;
  /** Bounds of the next continuation byte: they shut out overlong forms, surrogates and what lies beyond U+10FFFF. */
  #low = 0x80;
  #high = 0xbf;

  /** Whether bytes of an unfinished character are held back. */
  get isPending(): boolean {
    return this.#needed > 0;
  }

  /** Text that this byte makes certain: nothing, a character, U+FFFD, or U+FFFD and a character. */
  push(byte: number): string {
    if (this.#needed === 0) return this.#begin(byte);
    if (byte < this.#low || byte > this.#high) {
      // What was begun is invalid; this byte starts anew.
      this.#reset();
      return REPLACEMENT + this.#begin(byte);
    }
    this.#low = 0x80;
    this.#high = 0xbf;
    this.#codePoint = (this.#codePoint << 6) | (byte & 0x3f);
    this.#needed--;
    return this.#needed === 0 ? String.fromCodePoint(this.#codePoint) : '';
  }

  /** No more bytes: an unfinished character is invalid. */
  flush(): string {
    if (!this.isPending) return '';
    this.#reset();
    return REPLACEMENT;
  }

  #begin(byte: number): string {
    if (byte < 0x80) return String.fromCharCode(byte);
    if (byte >= 0xc2 && byte <= 0xdf) {
      this.#needed = 1;
      this.#codePoint = byte & 0x1f;
    } else if (byte >= 0xe0 && byte <= 0xef) {
      this.#needed = 2;
      this.#codePoint = byte & 0x0f;
      if (byte === 0xe0) this.#low = 0xa0;
      if (byte === 0xed) this.#high = 0x9f;
    } else if (byte >= 0xf0 && byte <= 0xf4) {
      this.#needed = 3;
      this.#codePoint = byte & 0x07;
      if (byte === 0xf0) this.#low = 0x90;
      if (byte === 0xf4) this.#high = 0x8f;
    } else {
      return REPLACEMENT;
    }
    return '';
  }

  #reset(): void {
    this.#needed = 0;
    this.#low = 0x80;
    this.#high = 0xbf;
  }
}
