/** A Worker in front of the gateway, bound to it as a service: whoever leaves the one is seen to leave by the other; the number as in docs/cases.md. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { bundleGateway } from '../../deploy/bundle-gateway.ts';
import { writeWorkerdConfig } from '../../deploy/workerd-config.ts';
import { type Child, startChild } from '../child.ts';
import { freePort } from '../free-port.ts';
import { eventually, scripted } from '../gateway/stack.ts';
import { startTokenSource, type TokenSource } from '../gateway/token-source.ts';
import { type RedisServer, startRedis } from '../redis-server.ts';

const KEY = 'sk-sluice-dev-00000000000000000000000000000000';
const FRONT = `
const front :Workerd.Worker = (
  modules = [(name = "front.js", esModule = "export default { fetch: (request, env) => env.GATEWAY.fetch(request) };")],
  compatibilityDate = "2026-08-01",
  bindings = [(name = "GATEWAY", service = "gateway")],
);
`;

let redis: RedisServer;
let source: TokenSource;
let worker: Child;
let folder: string;
let port: number;
beforeAll(async () => {
  redis = await startRedis();
  source = await startTokenSource({ redisUrl: redis.url, rowCount: 1 });
  folder = await mkdtemp(join(tmpdir(), 'sluice-binding-'));
  port = await freePort();
  const command = await writeWorkerdConfig({
    bundlePath: await bundleGateway(folder),
    dataFolder: folder,
    port,
    bindings: { REDIS_URL: redis.url, SLUICE_DEV_KEY: KEY, SLUICE_KEY_SECRET: 'x'.repeat(32), SLUICE_HEARTBEAT_MS: '200' },
  });
  const path = command.at(-1)!;
  const config = await readFile(path, 'utf8');
  const bound = config
    .replace('(name = "gateway", worker = .gateway),', '$&\n    (name = "front", worker = .front),')
    .replace('http = (), service = "gateway"', 'http = (), service = "front"');
  expect(bound.match(/front/g)).toHaveLength(3);
  await writeFile(path, bound + FRONT);
  worker = startChild(command[0]!, command.slice(1));
  await worker.until(() => fetch(`http://127.0.0.1:${port}/health`));
});
afterAll(async () => {
  await worker?.stop();
  await source?.stop();
  await redis?.stop();
  await rm(folder, { recursive: true, force: true });
});

const post = (body: unknown) =>
  fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${KEY}` },
    body: JSON.stringify(body),
  });

test.each([true, false])(
  'case 48: a client that leaves the front Worker has its job cancelled, and the row is free; stream %s',
  async stream => {
    const before = source.taken.length;
    const body = JSON.stringify(scripted({ pieces: ['on ', 'and '], repeat: 2_500, stepMs: 20 }, { stream }));
    const socket = connect(port, '127.0.0.1');
    socket.write(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${KEY}\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    let text = '';
    socket.on('data', data => (text += String(data)));
    // A stream's first words; a whole reply's head, which comes with its first heartbeat.
    await eventually('the reply to begin', () => source.taken.length === before + 1 && text.includes(stream ? 'on ' : '200 OK'));
    socket.destroy();
    await eventually('the job to be cancelled', () => source.cancelled.includes(source.taken[before]!));
    expect((await post(scripted({ pieces: ['a'] }))).status).toBe(200);
  },
);
