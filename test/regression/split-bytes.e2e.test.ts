/** Bytes that come one at a time, from Redis and from the client: no character is torn on the way; the number as in docs/cases.md. */
import { connect } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { chunksOf, parseSse, readSse, textOf } from '../gateway/sse-client.ts';
import { scripted } from '../gateway/stack.ts';
import { startTokenSource, type TokenSource } from '../gateway/token-source.ts';
import { startTrickle, type Trickle } from '../gateway/trickle.ts';
import { type GatewayServer, startGateway } from '../gateway-server.ts';
import { type RedisServer, startRedis } from '../redis-server.ts';

let redis: RedisServer;
let trickle: Trickle;
let source: TokenSource;
let gateway: GatewayServer;
beforeAll(async () => {
  redis = await startRedis();
  trickle = await startTrickle(Number(new URL(redis.url).port));
  source = await startTokenSource({ redisUrl: redis.url });
  const slow = new URL(redis.url);
  slow.port = String(trickle.port);
  gateway = await startGateway({ redisUrl: slow.href, bindings: { SLUICE_ACCESS_LOG: 'off' } });
});
afterAll(async () => {
  await gateway?.stop();
  await source?.stop();
  await trickle?.[Symbol.asyncDispose]();
  await redis?.stop();
});

const pieces = ['漢字', '😀', 'é\u0301', 'नमस्ते ', '👨‍👩‍👧', '\u2028\u2029\u0085', 'Ω\n\nΩ', 'data: 雨\n\n', 'שלום', 'end'];
const whole = pieces.join('');

test.each([
  ['/v1/chat/completions', scripted({ pieces })],
  ['/v1/completions', { model: 'default', prompt: '漢字 😀é नमस्ते\u2028 👨‍👩‍👧\u0085 שלום' }],
])('case 10: %s: an answer that Redis sends a byte at a time is the same, streamed and whole', async (path, body) => {
  const before = trickle.tornCount;
  const wanted = 'prompt' in body ? (body.prompt as string) : whole;
  const post = (more: object) =>
    fetch(gateway.url + path, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.key}` },
      body: JSON.stringify({ ...body, ...more }),
    });
  const stream = await readSse(await post({ stream: true }));
  const textIn = (choice: { text?: string; delta?: { content?: string }; message?: { content: string } }) =>
    choice.text ?? choice.delta?.content ?? choice.message?.content ?? '';
  expect(
    chunksOf(stream)
      .map(chunk => textIn(chunk.choices[0]!))
      .join(''),
  ).toBe(wanted);
  expect(stream.text).not.toContain('\ufffd');
  // What some clients take for the end of a line is in none.
  expect(stream.text).not.toMatch(/[\u0085\u2028\u2029]/);
  const reply = (await (await post({})).json()) as { choices: { text?: string; message?: { content: string } }[] };
  expect(textIn(reply.choices[0]!)).toBe(wanted);
  expect(trickle.tornCount).toBeGreaterThan(before + 20);
});

test('case 10: a request whose bytes come one at a time is understood as it was meant', async () => {
  const body = Buffer.from(JSON.stringify(scripted({ pieces }, { stream: true })));
  const socket = connect(gateway.port, '127.0.0.1').setNoDelay();
  const parts: Buffer[] = [];
  socket.on('data', data => parts.push(data));
  const closed = new Promise(resolve => socket.once('close', resolve));
  const head = `POST /v1/chat/completions HTTP/1.0\r\nhost: a\r\nauthorization: Bearer ${gateway.key}\r\ncontent-length: ${body.length}\r\n\r\n`;
  socket.write(head);
  for (const byte of body) {
    socket.write(Uint8Array.of(byte));
    await setImmediate();
  }
  await closed;
  const reply = new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(parts));
  expect(textOf(chunksOf(parseSse(reply.slice(reply.indexOf('\r\n\r\n') + 4))))).toBe(whole);
});
