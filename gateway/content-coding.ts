/**
 * ContentCoding: a request's body out of the coding that its Content-Encoding names (RFC 9110, 8.4); what it comes to is bounded while it is decoded.
 */
import { brotliDecompressSync, gunzipSync, inflateSync } from 'node:zlib';
import { ApiError } from '../shared/errors.ts';

/** Not zstd: its window may take more memory than the body has bytes. `deflate` is the zlib format. */
const DECODERS = { gzip: gunzipSync, 'x-gzip': gunzipSync, deflate: inflateSync, br: brotliDecompressSync } as const;
const ACCEPTED = 'gzip, deflate, br or identity';

/** workerd makes room in steps of 40 KiB, and refuses where the next step would pass the bound though the bytes do not. */
const STEP_BYTES = 64 * 1024;

export type ContentCoding = keyof typeof DECODERS;

/** Undefined where the body comes as it is. Throws `unsupported_content_encoding`, before the body is read. */
export function contentCoding(request: Request): ContentCoding | undefined {
  const header = request.headers.get('content-encoding');
  if (header === null) return undefined;
  const names = header.split(',').flatMap(name => name.trim().toLowerCase() || []);
  const codings = names.filter(name => name !== 'identity');
  const [coding, another] = codings;
  if (coding === undefined) return undefined;
  if (another !== undefined) throw unsupported(header, `a body may have one coding, ${ACCEPTED}`);
  if (!Object.hasOwn(DECODERS, coding)) throw unsupported(header, `it may be ${ACCEPTED}`);
  return coding as ContentCoding;
}

/** Throws `unsupported_content_encoding` for any coding; for bodies that are worked on while they come. */
export function requireUncoded(request: Request): void {
  if (contentCoding(request) !== undefined) throw unsupported(request.headers.get('content-encoding')!, 'this call takes no coded body');
}

/** Throws `body_too_large` where it comes to more than `limit` bytes, and `invalid_json` where it is not of the coding or cut off. */
export function decoded(bytes: Uint8Array, coding: ContentCoding, limit: number): Uint8Array {
  try {
    const whole = DECODERS[coding](bytes, { maxOutputLength: limit + STEP_BYTES });
    if (whole.byteLength <= limit) return whole;
  } catch (thrown) {
    if (!(thrown instanceof RangeError)) {
      throw new ApiError('invalid_json', `The request body could not be decoded as ${coding}, which its Content-Encoding says it is.`, {
        cause: thrown,
      });
    }
  }
  throw new ApiError('body_too_large', `The request body is larger than the limit of ${limit} bytes, once it is decoded.`);
}

function unsupported(header: string, reason: string): ApiError {
  return new ApiError('unsupported_content_encoding', `Unsupported Content-Encoding ${JSON.stringify(header.slice(0, 64))}: ${reason}.`);
}
