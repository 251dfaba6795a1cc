/** Bodies that come compressed: read as what they come to, within the bound of any body; what cannot be decoded is refused in words. */
import { readFileSync } from 'node:fs';
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type ErrorReply, type Stack, scripted, startStack } from './stack.ts';

const LIMIT = 100_000;
const OPERATOR = 'operator-key-that-is-long-enough-0123';
let stack: Stack;
beforeAll(async () => {
  stack = await startStack({ bindings: { SLUICE_ADMIN_KEY: OPERATOR, SLUICE_MAX_BODY_BYTES: String(LIMIT) } });
});
afterAll(() => stack.stop());

const ASKED = scripted({ pieces: ['one ', 'two'] });
const text = JSON.stringify(ASKED);
/** JSON of so many bytes. */
const filled = (bytes: number): string => text.padEnd(bytes);
const coded = (encoding: string, body: Uint8Array) => stack.post(body, { headers: { 'content-encoding': encoding } });
const errorOf = async (response: Response) => {
  const { code, message } = ((await response.json()) as ErrorReply).error;
  return [response.status, code, message];
};

describe('a coded body', () => {
  test.each([
    ['gzip', gzipSync(text)],
    ['GZIP', gzipSync(text)],
    ['x-gzip', gzipSync(text)],
    ['deflate', deflateSync(text)],
    ['br', brotliCompressSync(text)],
    ['identity', Buffer.from(text)],
    ['identity, gzip', gzipSync(text)],
    ['', Buffer.from(text)],
  ])('of %j is answered', async (encoding, body) => {
    const response = await coded(encoding, body);
    const answer = (await response.json()) as { choices: { message: { content: string } }[] };
    expect([response.status, answer.choices[0]?.message.content]).toEqual([200, 'one two']);
  });

  test('comes in pieces, of a length that is not told', async () => {
    const whole = gzipSync(text);
    const pieces = Array.from(whole, byte => Uint8Array.of(byte));
    const response = await fetch(`${stack.gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${stack.gateway.key}`, 'content-encoding': 'gzip' },
      body: ReadableStream.from(pieces),
      duplex: 'half',
    } as RequestInit);
    expect(response.status).toBe(200);
  });

  test('of several members is all of them', async () => {
    const response = await coded('gzip', Buffer.concat([gzipSync(text.slice(0, 20)), gzipSync(text.slice(20))]));
    expect(response.status).toBe(200);
  });

  test('reaches the administration, too', async () => {
    const response = await fetch(`${stack.gateway.url}/admin/keys`, {
      method: 'POST',
      headers: { authorization: `Bearer ${OPERATOR}`, 'content-encoding': 'gzip' },
      body: gzipSync(JSON.stringify({ tenant: 'coded' })),
    });
    expect(response.status).toBe(201);
  });
});

describe('is refused', () => {
  const CODINGS = { gzip: gzipSync, deflate: deflateSync, br: brotliCompressSync };

  test.each(Object.entries(CODINGS))('what %s comes to, past the limit, and not up to it', async (encoding, compress) => {
    expect((await coded(encoding, compress(filled(LIMIT)))).status).toBe(200);
    expect(await errorOf(await coded(encoding, compress(filled(LIMIT + 1))))).toEqual([
      413,
      'body_too_large',
      expect.stringContaining(`${LIMIT} bytes, once it is decoded`),
    ]);
  });

  test.each(Object.entries(CODINGS))('a bomb of %s, many at once, at no cost of memory', async (encoding, compress) => {
    // 90 MB each.
    const bomb = compress(Buffer.alloc(90_000_000, 0x20));
    expect(bomb.length).toBeLessThan(LIMIT);
    const before = peakBytes(stack.gateway.pid);
    const replies = await Promise.all(Array.from({ length: 16 }, () => coded(encoding, bomb)));
    for (const reply of replies) expect((await errorOf(reply)).slice(0, 2)).toEqual([413, 'body_too_large']);
    expect(peakBytes(stack.gateway.pid) - before).toBeLessThan(80_000_000);
  });

  test.each([
    ['cut off', 'gzip', gzipSync(text).subarray(0, -9)],
    ['cut off', 'deflate', deflateSync(text).subarray(0, -5)],
    ['cut off', 'br', brotliCompressSync(text).subarray(0, -3)],
    ['none at all', 'gzip', Buffer.from(text)],
    ['none at all', 'deflate', Buffer.from(text)],
    ['none at all', 'br', Buffer.from(text)],
    ['of another coding', 'gzip', deflateSync(text)],
    ['of another coding', 'deflate', deflateRawSync(text)],
    ['with a wrong checksum', 'gzip', spoilt(gzipSync(text), -6)],
    ['with what is none behind it', 'gzip', Buffer.concat([gzipSync(text), Buffer.from('more')])],
    ['empty', 'gzip', Buffer.alloc(0)],
    ['coded once more', 'gzip', gzipSync(gzipSync(text))],
  ])('%s: %s', async (_, encoding, body) => {
    expect((await errorOf(await coded(encoding, body))).slice(0, 2)).toEqual([400, 'invalid_json']);
  });

  test.each(['zstd', 'compress', 'gzip, gzip', 'gzip, br', 'gzip;q=1', 'utf-8', 'constructor', '"gzip"'])(
    '%j by its name',
    async encoding => {
      const error = await errorOf(await coded(encoding, zstdCompressSync(text)));
      expect(error).toEqual([415, 'unsupported_content_encoding', expect.stringContaining('gzip, deflate, br or identity')]);
      expect(error[2]).toContain(`Content-Encoding ${JSON.stringify(encoding)}`);
    },
  );

  test('any of an uploaded file', async () => {
    const response = await fetch(`${stack.gateway.url}/v1/files`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${stack.gateway.key}`,
        'content-type': 'multipart/form-data; boundary=a',
        'content-encoding': 'gzip',
      },
      body: gzipSync('--a--'),
    });
    expect((await errorOf(response)).slice(0, 2)).toEqual([415, 'unsupported_content_encoding']);
  });

  test('in the words of Anthropic under /v1/messages', async () => {
    const response = await fetch(`${stack.gateway.url}/v1/messages`, {
      method: 'POST',
      headers: { 'x-api-key': stack.gateway.key, 'content-encoding': 'zstd' },
      body: zstdCompressSync(text),
    });
    expect([response.status, await response.json()]).toMatchObject([
      415,
      { type: 'error', error: { type: 'invalid_request_error', details: { error_code: 'unsupported_content_encoding' } } },
    ]);
  });
});

function peakBytes(pid: number): number {
  return Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) * 1024;
}

function spoilt(bytes: Uint8Array, at: number): Uint8Array {
  const copy = Uint8Array.from(bytes);
  copy[copy.length + at]! ^= 0xff;
  return copy;
}
