/** Lifecycle: clients that leave or read slowly, a Redis that goes and comes back, batchers that are replaced. Nothing is left behind. */
import { connect, type Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { generationKey } from '../../shared/keys.ts';
import { chunksOf, readSse, textOf } from './sse-client.ts';
import { type ErrorReply, eventually, type Stack, scripted, startStack } from './stack.ts';

let stack: Stack;
beforeAll(async () => {
  stack = await startStack({
    rowCount: 2,
    bindings: { SLUICE_HEARTBEAT_MS: '200', SLUICE_MAX_BUFFERED_BYTES: '65536', SLUICE_RESUME_GRACE_MS: '500' },
  });
});
afterAll(() => stack.stop());

const sockets: Socket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
  stack.source.resume();
});

const endless = { pieces: ['on ', 'and '], repeat: 2_500, stepMs: 20 };

/** A request over a bare socket, so that it can be closed at any point. Resolves when it is sent. */
async function open(body: unknown): Promise<Socket> {
  const socket = connect(stack.gateway.port, '127.0.0.1');
  sockets.push(socket);
  await new Promise((resolve, reject) => socket.once('connect', () => resolve(undefined)).once('error', reject));
  const text = JSON.stringify(body);
  const head = [
    'POST /v1/chat/completions HTTP/1.1',
    'host: localhost',
    `authorization: Bearer ${stack.gateway.key}`,
    'content-type: application/json',
    `content-length: ${Buffer.byteLength(text)}`,
  ];
  socket.write(`${head.join('\r\n')}\r\n\r\n${text}`);
  return socket;
}

const queued = () => stack.source.redis.zcard('sluice:{test-model}:generate:prioritized');
const ask = async () => {
  const stream = await readSse(await stack.post(scripted({ pieces: ['a', 'b'] }, { stream: true })));
  return textOf(chunksOf(stream));
};

describe('cases 46 and 48: a client that leaves', () => {
  test.each([true, false])('while tokens flow, stream %s: the job is cancelled and its row is free', async stream => {
    const before = stack.source.taken.length;
    const clients = [await open(scripted(endless, { stream })), await open(scripted(endless, { stream }))];
    await eventually('both rows to be taken', () => stack.source.taken.length === before + 2);
    // No third row.
    const third = ask();
    for (const client of clients) client.destroy();
    expect(await third).toBe('ab');
    const mine = stack.source.taken.slice(before, before + 2);
    await eventually('both to be cancelled', () => mine.every(id => stack.source.cancelled.includes(id)));
  });

  test.each([true, false])('while it waits, stream %s: the job leaves the queue', async stream => {
    await stack.source.hold();
    const client = await open(scripted(endless, { stream }));
    await eventually('the job to be queued', async () => (await queued()) === 1);
    const taken = stack.source.taken.length;
    client.destroy();
    await eventually('the job to be removed', async () => (await queued()) === 0);
    stack.source.resume();
    expect(await ask()).toBe('ab');
    expect(stack.source.taken.length).toBe(taken + 1);
  });

  test('before the request is whole', async () => {
    const socket = connect(stack.gateway.port, '127.0.0.1');
    await new Promise(resolve => socket.once('connect', resolve));
    socket.write(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${stack.gateway.key}\r\ncontent-length: 500\r\n\r\n{"model"`,
    );
    socket.destroy();
    expect(await ask()).toBe('ab');
  });

  test('many at random: no job and no row is left', async () => {
    const clients = await Promise.all(
      Array.from({ length: 40 }, (_, index) => open(scripted({ ...endless, stepMs: index % 7 }, { stream: index % 2 === 0 }))),
    );
    for (const [index, client] of clients.entries()) {
      await new Promise(resolve => setTimeout(resolve, (index * 7) % 31));
      client.destroy();
    }
    await eventually('an empty queue', async () => (await queued()) === 0);
    expect(await ask()).toBe('ab');
    await eventually('no job', async () => (await stack.source.redis.keys('sluice:{test-model}:generate:chatcmpl*')).length === 0);
  });
});

test('case 62: a client that does not read is cut off, and its job is cancelled', async () => {
  const piece = 'x'.repeat(20_000);
  const before = stack.source.taken.length;
  const client = await open(scripted({ pieces: [piece], repeat: 2_000 }, { stream: true }));
  client.pause();
  await eventually('the job to be taken', () => stack.source.taken.length === before + 1);
  await eventually('the job to be cancelled', () => stack.source.cancelled.includes(stack.source.taken[before]!));
  expect(stack.gateway.output()).toContain('"why":"slow"');
  // What had been sent ends with the reason.
  const parts: Buffer[] = [];
  client.on('data', data => parts.push(data));
  client.resume();
  await eventually('the reason', () => Buffer.concat(parts).includes('read too slowly'));
});

describe('case 42: Redis goes and comes back', () => {
  test('503 with Retry-After meanwhile, running streams go on afterwards', async () => {
    const before = stack.source.taken.length;
    const running = stack.post(scripted({ pieces: ['one ', 'two ', 'three ', 'four'], stepMs: 300 }, { stream: true }));
    const whole = stack.post(scripted({ pieces: ['one ', 'two ', 'three ', 'four'], stepMs: 300 }));
    // A job whose taking is cut short is a batcher's affair: here both have begun.
    await eventually('both to run', async () => {
      const records = stack.source.taken.slice(before).map(id => stack.source.redis.xlen(generationKey(id)));
      return records.length === 2 && (await Promise.all(records)).every(length => length > 1);
    });
    await stack.redis.halt();
    const refused = await stack.post(scripted({ pieces: ['a'] }));
    expect(refused.status).toBe(503);
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(((await refused.json()) as ErrorReply).error).toMatchObject({
      code: 'dependency_unavailable',
      type: 'service_unavailable',
      param: null,
    });
    expect((await fetch(`${stack.gateway.url}/ready`)).status).toBe(503);
    expect((await fetch(`${stack.gateway.url}/health`)).status).toBe(200);
    await stack.redis.resume();
    expect(textOf(chunksOf(await readSse(await running)))).toBe('one two three four');
    expect(((await (await whole).json()) as { choices: { message: { content: string } }[] }).choices[0]!.message.content).toBe(
      'one two three four',
    );
    await eventually('new requests to be served', async () => (await stack.post(scripted({ pieces: ['a'] }))).status === 200);
    expect(await ask()).toBe('ab');
  });

  test('a client that left meanwhile has its job cancelled afterwards', async () => {
    await stack.source.hold();
    const client = await open(scripted(endless, { stream: true }));
    await eventually('the job to be queued', async () => (await queued()) === 1);
    const leftCount = () => stack.gateway.output().split('"why":"left"').length;
    const before = leftCount();
    await stack.redis.halt();
    client.destroy();
    await eventually('the leaving to be seen', () => leftCount() > before);
    await stack.redis.resume();
    await eventually('the job to be removed', async () => (await queued().catch(() => 1)) === 0);
  });
});

test('500 streams at once, each whole', async () => {
  const source = await import('./token-source.ts').then(module =>
    module.startTokenSource({ redisUrl: stack.redis.url, model: 'wide', rowCount: 500 }),
  );
  try {
    await eventually(
      'the model to be known',
      async () => (await stack.post({ model: 'wide', messages: [{ role: 'user', content: 'a' }] })).status === 200,
    );
    const texts = await Promise.all(
      Array.from({ length: 500 }, async (_, index) => {
        const response = await stack.post({
          ...scripted({ pieces: [`${index} `, 'b ', 'c'], stepMs: 5 }, { stream: true }),
          model: 'wide',
        });
        return textOf(chunksOf(await readSse(response)));
      }),
    );
    expect(texts).toEqual(Array.from({ length: 500 }, (_, index) => `${index} b c`));
  } finally {
    await source.stop();
  }
});
