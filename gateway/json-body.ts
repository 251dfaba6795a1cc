/** JsonBody: a request's body as a JSON object, its size, decoded, and depth bounded before anything is parsed. */
import { ApiError } from '../shared/errors.ts';
import { contentCoding, decoded } from './content-coding.ts';
import type { Settings } from './env.ts';
import { joinedBytes } from './joined-bytes.ts';
import { discard } from './linger.ts';

export type JsonObject = Record<string, unknown>;

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false });

type Bounds = Pick<Settings, 'maxBodyBytes' | 'maxJsonDepth'>;

/** Throws `body_too_large`, `unsupported_content_encoding` or `invalid_json`. */
export async function readJsonBody(request: Request, { maxBodyBytes, maxJsonDepth }: Bounds): Promise<JsonObject> {
  const coding = contentCoding(request);
  const bytes = await readBytes(request, maxBodyBytes);
  return parseJsonObject(decode(coding === undefined ? bytes : decoded(bytes, coding, maxBodyBytes)), maxJsonDepth);
}

async function readBytes(request: Request, limit: number): Promise<Uint8Array> {
  // A length that is declared saves reading; one that lies, or none, is caught while reading.
  const declared = request.headers.get('content-length');
  if (Number(declared ?? 0) > limit) throw tooLarge(limit);
  if (request.body === null) return new Uint8Array();
  // No more comes than is declared, and one piece is quicker read than several.
  if (declared !== null && !request.headers.has('transfer-encoding')) {
    const whole = new Uint8Array(await request.arrayBuffer());
    if (whole.byteLength > limit) throw tooLarge(limit);
    return whole;
  }
  const chunks: Uint8Array[] = [];
  const pieces = (request.body as ReadableStream<Uint8Array>)[Symbol.asyncIterator]();
  let size = 0;
  try {
    for (let piece = await pieces.next(); piece.done !== true; piece = await pieces.next()) {
      size += piece.value.byteLength;
      if (size > limit) break;
      chunks.push(piece.value);
    }
  } catch (thrown) {
    // Chunks that are none, or a client that left half-way.
    throw new ApiError('invalid_json', 'The request body could not be read to its end.', { cause: thrown });
  }
  if (size > limit) {
    await discard(pieces);
    throw tooLarge(limit);
  }
  return joinedBytes(chunks);
}

function tooLarge(limit: number): ApiError {
  return new ApiError('body_too_large', `The request body is larger than the limit of ${limit} bytes.`);
}

function decode(bytes: Uint8Array): string {
  try {
    return decoder.decode(bytes);
  } catch {
    throw new ApiError('invalid_json', 'The request body is not valid UTF-8.');
  }
}

export function parseJsonObject(text: string, maxDepth: number): JsonObject {
  if (text.trim() === '') throw new ApiError('invalid_json', 'The request body is empty; it must be a JSON object.');
  if (isDeeperThan(text, maxDepth)) throw new ApiError('invalid_json', `The request body is nested deeper than ${maxDepth} levels.`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw syntaxError(text, error as SyntaxError);
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as JsonObject;
  const kind = value === null ? 'null' : Array.isArray(value) ? 'an array' : `a ${typeof value}`;
  throw new ApiError('invalid_json', `The request body must be a JSON object, but it is ${kind}.`);
}

/** NaN and Infinity are what languages other than JavaScript write for a number that JSON has no form for: name the field. */
function syntaxError(text: string, error: SyntaxError): ApiError {
  const field = /"([^"\\]{1,64})"\s*:\s*(-?(?:NaN|Infinity))\b/.exec(text);
  if (field !== null) {
    return new ApiError('invalid_json', `The request body is not valid JSON: '${field[1]}' is ${field[2]}, which is not a JSON number.`, {
      param: field[1]!,
    });
  }
  const position = /at position (\d+)/.exec(error.message)?.[1];
  const where = position === undefined ? '' : ` (at character ${position})`;
  return new ApiError('invalid_json', `We could not parse the JSON body of your request${where}.`);
}

const QUOTE = 34;
const BACKSLASH = 92;

/** Counts brackets outside of strings; stops at the first that is too deep. */
function isDeeperThan(text: string, limit: number): boolean {
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if (char === QUOTE) {
      i = endOfString(text, i);
    } else if (char === 91 || char === 123) {
      if (++depth > limit) return true;
    } else if (char === 93 || char === 125) {
      depth--;
    }
  }
  return false;
}

/** Index of the quote that closes the string opened at `start`; past the end when none does. */
function endOfString(text: string, start: number): number {
  let end = text.indexOf('"', start + 1);
  while (end !== -1) {
    let escapes = 0;
    while (text.charCodeAt(end - 1 - escapes) === BACKSLASH) escapes++;
    if (escapes % 2 === 0) return end;
    end = text.indexOf('"', end + 1);
  }
  return text.length;
}
