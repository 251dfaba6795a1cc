/**
 * TextCoverage: how many first tokens of a prompt hold each of its text blocks (shared/prefix.ts).
 * Guarantee: where the template writes each field of the conversation, in order and in full, no block is said to be held by fewer
 * tokens than it takes; elsewhere the error is bounded by the window below.
 *
 * The rule: fields are looked for in the tokens' own text from the end to the front, each byte at the last place where it can stand. So what
 * the template writes around a field never makes a byte appear too early, and at most as late as that markup is long: after it the two texts
 * fall into step, since out of step they soon differ. A field that is not found within the window (a template may leave it out, or rewrite
 * it) counts as held when what follows it is.
 *
 *     fields     U|how are you|A|fine|                     tags (|) take the place of what follows them
 *     tokens     <|user|> how are you <|end|> <|assistant|> fine …       ◀── from the end to the front
 */
import { isTag, TEXT_BLOCK_BYTES } from '../shared/prefix.ts';
import type { TokenBytes } from './text/incremental-detokenizer.ts';

/** Bytes that a template may write between two fields; the longest known, the instructions behind a list of tools, are some 300. */
const MARKUP_BYTES = 512;
/** A window may grow over fields that were not found up to this. */
const WINDOW_LIMIT_BYTES = 4096;
/** Work: bytes of the tokens looked at, those of fields in vain included; a prompt whose fields are all there takes each once. */
const WORK_BYTES = 65_536;
const WORK_PER_BYTE = 4;
const WORK_PER_TOKEN = 16;

export interface PromptText {
  /** promptBytes of the prompt. */
  bytes: Uint8Array;
  kind: 'chat' | 'text' | 'tokens';
  tokenIds: readonly number[];
  /** Text of a token, control tokens spelled. */
  tokenBytes: TokenBytes;
}

/** For each whole text block the number of first tokens that hold it; never falling. */
export function textCoverage({ bytes, kind, tokenIds, tokenBytes }: PromptText): number[] {
  const blockCount = Math.floor(bytes.length / TEXT_BLOCK_BYTES);
  const ends = Array.from({ length: blockCount }, (_, block) => (block + 1) * TEXT_BLOCK_BYTES);
  // Behind the byte that names the kind each token is four bytes.
  if (kind === 'tokens') return ends.map(end => Math.ceil((end - 1) / 4));
  if (blockCount === 0) return [];
  const needs = byteNeeds(bytes, new TokenTextCursor(tokenIds, tokenBytes));
  return ends.map(end => needs[end - 1]!);
}

/** For each byte the number of first tokens that hold it. */
function byteNeeds(bytes: Uint8Array, cursor: TokenTextCursor): Int32Array {
  const needs = new Int32Array(bytes.length);
  let need = cursor.tokenCount;
  let slack = MARKUP_BYTES;
  let work = WORK_BYTES + WORK_PER_BYTE * bytes.length + WORK_PER_TOKEN * need;
  let end = bytes.length;
  while (end > 0) {
    let start = end;
    while (start > 0 && !isTag(bytes[start - 1]!)) start -= 1;
    const text = trimmed(bytes, start, end);
    const window = 2 * (text.end - text.start) + slack;
    const place = cursor.place;
    needs.fill(need, text.end, end);
    const readBefore = cursor.readCount;
    const isFound = findField(bytes, { ...text, window: Math.min(window, work) }, cursor, needs);
    work -= cursor.readCount - readBefore;
    if (isFound) {
      if (text.end > text.start) {
        need = needs[text.start]!;
        slack = MARKUP_BYTES;
      }
    } else {
      needs.fill(need, text.start, text.end);
      slack = Math.min(WINDOW_LIMIT_BYTES, window);
      cursor.place = place;
    }
    // The tag too takes the place of what follows it.
    needs.fill(need, Math.max(0, start - 1), text.start);
    end = start - 1;
  }
  return needs;
}

/** Fills in the field's needs and leaves the cursor at its start; false, and some of the needs wrong, when it is not in the window. */
function findField(
  bytes: Uint8Array,
  field: { start: number; end: number; window: number },
  cursor: TokenTextCursor,
  needs: Int32Array,
): boolean {
  let left = field.window;
  for (let at = field.end - 1; at >= field.start; at -= 1) {
    let byte: number | undefined;
    do {
      if (left === 0) return false;
      left -= 1;
      byte = cursor.previous();
      if (byte === undefined) return false;
    } while (byte !== bytes[at]);
    needs[at] = cursor.tokenCount;
  }
  return true;
}

/** Without white space at its ends, which templates like to trim away. */
function trimmed(bytes: Uint8Array, start: number, end: number): { start: number; end: number } {
  let from = start;
  let to = end;
  while (to > from && isSpace(bytes[to - 1]!)) to -= 1;
  while (from < to && isSpace(bytes[from]!)) from += 1;
  return { start: from, end: to };
}

function isSpace(byte: number): boolean {
  return byte === 0x20 || (byte >= 0x09 && byte <= 0x0d);
}

interface TokenTextPlace {
  /** Index of the token that the next byte comes from, while `at` bytes of it are left. */
  token: number;
  at: number;
}

/** The text of the tokens, byte by byte from its end. */
class TokenTextCursor {
  readonly #tokenIds: readonly number[];
  readonly #tokenBytes: TokenBytes;
  #token: number;
  #bytes: Uint8Array = NO_BYTES;
  #at = 0;
  #readCount = 0;

  constructor(tokenIds: readonly number[], tokenBytes: TokenBytes) {
    this.#tokenIds = tokenIds;
    this.#tokenBytes = tokenBytes;
    this.#token = tokenIds.length;
  }

  /** Tokens up to and with the one that the last byte came from; all of them before the first byte. */
  get tokenCount(): number {
    return Math.min(this.#token + 1, this.#tokenIds.length);
  }

  /** Bytes given so far. */
  get readCount(): number {
    return this.#readCount;
  }

  previous(): number | undefined {
    while (this.#at === 0) {
      if (this.#token === 0) return undefined;
      this.#token -= 1;
      this.#bytes = this.#tokenBytes(this.#tokenIds[this.#token]!);
      this.#at = this.#bytes.length;
    }
    this.#at -= 1;
    this.#readCount += 1;
    return this.#bytes[this.#at];
  }

  get place(): TokenTextPlace {
    return { token: this.#token, at: this.#at };
  }

  set place({ token, at }: TokenTextPlace) {
    this.#token = token;
    this.#at = at;
    this.#bytes = at === 0 ? NO_BYTES : this.#tokenBytes(this.#tokenIds[token]!);
  }
}

const NO_BYTES = new Uint8Array(0);
