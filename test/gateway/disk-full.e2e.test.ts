/** A Redis whose disk is full: it answers and takes nothing. New requests are refused at once and may come again; when there is room they are served. */

import { execFileSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Child, startChild } from '../child.ts';
import { freePort } from '../free-port.ts';
import { type GatewayServer, startGateway } from '../gateway-server.ts';
import { type ErrorReply, eventually, scripted } from './stack.ts';
import { startTokenSource, type TokenSource } from './token-source.ts';

let folder: string;
let server: Child;
let redis: Redis;
let gateway: GatewayServer;
let source: TokenSource;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sluice-disk-full-'));
  const port = await freePort();
  const url = `redis://127.0.0.1:${port}`;
  const command = `redis-server --port ${port} --bind 127.0.0.1 --dir ${folder} --save '' --appendonly yes --appendfsync everysec`;
  // A write past the limit on file size then fails like one on a full disk, and does not end the process.
  server = startChild('bash', ['-c', `trap '' XFSZ; exec ${command}`]);
  redis = new Redis(url, { lazyConnect: true, maxRetriesPerRequest: null });
  redis.on('error', () => undefined);
  await server.until(() => redis.ping());
  source = await startTokenSource({ redisUrl: url });
  gateway = await startGateway({ redisUrl: url, bindings: { SLUICE_ACCESS_LOG: 'off' } });
});

afterAll(async () => {
  await gateway?.stop();
  await source?.stop();
  redis?.disconnect();
  await server?.stop();
  await rm(folder, { recursive: true, force: true });
});

const post = () =>
  fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.key}`, 'content-type': 'application/json' },
    body: JSON.stringify(scripted({ pieces: ['one'] })),
  });

const limitFileSize = (bytes: number | 'unlimited') =>
  execFileSync('prlimit', ['--pid', String(server.pid), `--fsize=${bytes}:unlimited`], { stdio: 'pipe' });

test('new requests get 503 with Retry-After while it lasts, and are served afterwards', async () => {
  expect((await post()).status).toBe(200);
  limitFileSize(1);
  // It notices with its next write to disk.
  await eventually('Redis to refuse writes', () =>
    redis.set('x', 'y'.repeat(1_000)).then(
      () => false,
      error => String(error).includes('MISCONF'),
    ),
  );
  const refused = await post();
  expect(refused.status).toBe(503);
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
  expect(((await refused.json()) as ErrorReply).error.code).toBe('dependency_unavailable');
  limitFileSize('unlimited');
  await eventually('requests to be served', async () => (await post()).status === 200);
});
