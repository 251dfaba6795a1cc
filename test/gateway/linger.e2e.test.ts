/** Whoever is refused in the middle of a body reads why: no client loses this reply, or the next on its connection, over what it still sends. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type ErrorReply, type Stack, startStack } from './stack.ts';

const OPERATOR = 'operator-key-that-is-long-enough-0123';
/** Each loses its reply now and then, not always, when the gateway stops reading. */
const TIMES = 8;
let stack: Stack;
beforeAll(async () => {
  stack = await startStack({ bindings: { SLUICE_ADMIN_KEY: OPERATOR, SLUICE_MAX_BODY_BYTES: '100000' } });
});
afterAll(() => stack.stop());

const text = (bytes: number): string => JSON.stringify({ model: 'test-model', user: 'x'.repeat(bytes) });
const inPieces = (bytes: number) => ReadableStream.from(Array.from({ length: Math.ceil(bytes / 50_000) }, () => Buffer.alloc(50_000, 120)));
const CHAT = '/v1/chat/completions';

test.each([
  ['too large for the API', CHAT, () => stack.gateway.key, () => text(8_000_000), 413, 'body_too_large'],
  ['too large, of a length not told', CHAT, () => stack.gateway.key, () => inPieces(8_000_000), 413, 'body_too_large'],
  ['too large for the administrator', '/admin/keys', () => OPERATOR, () => text(3_000_000), 413, 'body_too_large'],
  ['of a stranger', CHAT, () => 'sk-nobody', () => text(700_000), 401, 'invalid_api_key'],
  ['for no URL', '/v1/nothing', () => stack.gateway.key, () => text(700_000), 404, 'not_found'],
])('%s', async (_, path, key, body, status, code) => {
  for (let time = 0; time < TIMES; time++) {
    const response = await fetch(new URL(path, stack.gateway.url), {
      method: 'POST',
      headers: { authorization: `Bearer ${key()}`, 'content-type': 'application/json' },
      body: body(),
      duplex: 'half',
    } as RequestInit);
    expect([response.status, ((await response.json()) as ErrorReply).error.code]).toEqual([status, code]);
  }
});

test.each([40, 50_000])('%i bytes of a stranger that come after their head, and again on the same connection', async bytes => {
  const { hostname, port } = new URL(stack.gateway.url);
  const socket = connect(Number(port), hostname);
  for (let time = 0; time < TIMES; time++) {
    socket.write(`POST ${CHAT} HTTP/1.1\r\nhost: ${hostname}\r\nauthorization: Bearer sk-nobody\r\ncontent-length: ${bytes}\r\n\r\n`);
    await sleep(50);
    socket.write('x'.repeat(bytes));
    const [reply] = (await once(socket, 'data', { signal: AbortSignal.timeout(5_000) })) as [Buffer];
    expect(reply.toString()).toContain('HTTP/1.1 401 ');
    await sleep(50); // in which it might be closed
  }
  socket.destroy();
});

test('who asks before it sends is refused at once, without being asked for the body', async () => {
  const { hostname, port } = new URL(stack.gateway.url);
  const socket = connect(Number(port), hostname);
  const head = ['POST /v1/chat/completions HTTP/1.1', `host: ${hostname}`, 'authorization: Bearer sk-nobody', 'expect: 100-continue'];
  socket.write(`${[...head, 'content-length: 900000'].join('\r\n')}\r\n\r\n`);
  const [reply] = (await once(socket, 'data', { signal: AbortSignal.timeout(5_000) })) as [Buffer];
  expect(reply.toString()).toMatch(/^HTTP\/1\.1 401 /);
  socket.destroy();
});
