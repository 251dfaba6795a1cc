/**
 * Multipart: a multipart/form-data body, part by part, as it comes; no more of it is held than a piece and the length of a boundary.
 *
 * Source: RFC 7578 and RFC 2046. Throws `invalid_value` for what is no such body.
 */
import { ApiError } from '../../shared/errors.ts';
import { joinedBytes } from '../joined-bytes.ts';

export interface FormPart {
  name: string;
  /** Undefined for a field that is no file. */
  filename: string | undefined;
  /** To be read to its end before the next part is asked for. */
  content: AsyncIterable<Uint8Array>;
}

const MAX_HEAD_BYTES = 16 * 1024;
const MAX_PARTS = 32;
const CRLF = new Uint8Array([13, 10]);
const HEAD_END = new Uint8Array([13, 10, 13, 10]);

/** Undefined for a content type that is not of this kind. */
export function boundaryOf(contentType: string | undefined): string | undefined {
  const match = /^multipart\/form-data\s*;.*\bboundary=(?:"([^"]{1,70})"|([^\s;"]{1,70})(?=[\s;]|$))/i.exec(contentType ?? '');
  return match?.[1] ?? match?.[2];
}

export async function* formParts(body: AsyncIterable<Uint8Array>, boundary: string): AsyncGenerator<FormPart> {
  const reader = new PieceReader(body);
  const delimiter = new TextEncoder().encode(`\r\n--${boundary}`);
  // The first boundary has no line before it.
  reader.prepend(CRLF);
  let strayBytes = 0;
  for await (const piece of reader.until(delimiter)) {
    strayBytes += piece.length;
    if (strayBytes > MAX_HEAD_BYTES) throw malformed('its boundary does not come');
  }
  for (let count = 0; !(await isLast(reader)); count++) {
    if (count >= MAX_PARTS) throw malformed(`it has more than ${MAX_PARTS} parts`);
    const head = await readHead(reader);
    const content = reader.until(delimiter);
    yield { ...head, content };
    for await (const _ of content) {
      // Whatever its reader has left.
    }
  }
}

/** Behind a boundary: two hyphens at the end of all, the end of a line before a part. */
async function isLast(reader: PieceReader): Promise<boolean> {
  const mark = new TextDecoder().decode(await reader.take(2));
  if (mark === '--') return true;
  if (mark !== '\r\n') throw malformed('a boundary is followed by something else');
  return false;
}

async function readHead(reader: PieceReader): Promise<Pick<FormPart, 'name' | 'filename'>> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  // A part without a head begins with the empty line at once; such a part has no name.
  reader.prepend(CRLF);
  for await (const piece of reader.until(HEAD_END)) {
    bytes += piece.length;
    if (bytes > MAX_HEAD_BYTES) throw malformed('the head of a part is too long');
    parts.push(piece);
  }
  const head = new TextDecoder().decode(joinedBytes(parts));
  const disposition = /^content-disposition:\s*form-data\s*;(.*)$/im.exec(head)?.[1] ?? '';
  const name = parameter(disposition, 'name');
  if (name === undefined) throw malformed('a part has no name');
  return { name, filename: parameter(disposition, 'filename') };
}

function parameter(disposition: string, name: string): string | undefined {
  const match = new RegExp(`(?:^|;)\\s*${name}="((?:[^"\\\\]|\\\\.)*)"`, 'i').exec(disposition);
  // As browsers write what would end the text.
  return match?.[1]?.replaceAll('%22', '"').replaceAll('%0D', '\r').replaceAll('%0A', '\n').replaceAll('\\"', '"');
}

/** PieceReader: bytes that come in pieces of any size, read up to a mark or a count. */
class PieceReader {
  readonly #source: AsyncIterator<Uint8Array>;
  #held: Uint8Array = new Uint8Array();
  #isOver = false;

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  prepend(bytes: Uint8Array): void {
    this.#held = joinedBytes([bytes, this.#held]);
  }

  async take(count: number): Promise<Uint8Array> {
    while (this.#held.length < count) if (!(await this.#more())) throw malformed('it ends too early');
    const taken = this.#held.subarray(0, count);
    this.#held = this.#held.subarray(count);
    return taken;
  }

  /** What comes before the mark, which is read too. Throws when it does not come. */
  async *until(mark: Uint8Array): AsyncGenerator<Uint8Array> {
    for (;;) {
      const at = indexOf(this.#held, mark);
      if (at !== -1) {
        const before = this.#held.subarray(0, at);
        this.#held = this.#held.subarray(at + mark.length);
        if (before.length > 0) yield before;
        return;
      }
      // The mark may have begun at the end.
      const sure = this.#held.length - mark.length + 1;
      if (sure > 0) {
        const before = this.#held.subarray(0, sure);
        this.#held = this.#held.subarray(sure);
        yield before;
      }
      if (!(await this.#more())) throw malformed('it ends too early');
    }
  }

  async #more(): Promise<boolean> {
    if (this.#isOver) return false;
    const { value, done } = await this.#source.next();
    if (done === true) {
      this.#isOver = true;
      return false;
    }
    this.#held = this.#held.length === 0 ? value : joinedBytes([this.#held, value]);
    return true;
  }
}

function indexOf(bytes: Uint8Array, mark: Uint8Array): number {
  const last = bytes.length - mark.length;
  for (let at = bytes.indexOf(mark[0]!); at !== -1 && at <= last; at = bytes.indexOf(mark[0]!, at + 1)) {
    let length = 1;
    while (length < mark.length && bytes[at + length] === mark[length]) length++;
    if (length === mark.length) return at;
  }
  return -1;
}

function malformed(why: string): ApiError {
  return new ApiError('invalid_value', `The body is no multipart/form-data as it should be: ${why}.`);
}
