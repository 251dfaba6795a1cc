/**
 * GatewaySide: one gateway under load, ours or a peer, each in one process with a stand-in behind it that computes nothing: where it listens
 * and how it is asked. Every side is asked the same.
 */
import type { ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ChildLog } from '../scripts/supervisor/child-log.ts';
import { freePort } from '../scripts/supervisor/free-port.ts';
import { ensureRedisBinary } from '../scripts/supervisor/redis-binary.ts';
import { startRedisServer } from '../scripts/supervisor/redis-server.ts';
import type { BenchRun } from './bench.ts';

/** A gateway that proxies to an upstream. */
export interface Peer {
  name: string;
  version: string;
  command(at: { port: number; upstreamPort: number }): string[] | Promise<string[]>;
  headers(at: { upstreamPort: number }): Record<string, string>;
  /** Of a request that it refuses; undefined when it refuses nobody. */
  refusedHeaders: Record<string, string> | undefined;
  environment: Record<string, string>;
}

export interface Refusal {
  name: string;
  request: Buffer;
  statuses: readonly number[];
}

export interface GatewaySide {
  name: string;
  port: number;
  /** Of the gateway alone. */
  pid: number;
  /** A streamed request of so many tokens; with a pace each comes so many ms after the one before. */
  request(tokenCount: number, paceMs?: number): Buffer;
  refusals: readonly Refusal[];
}

type Run = Pick<BenchRun, 'progress' | 'children'>;

const MODEL = 'instant';
const PATH = '/v1/chat/completions';
const READY_PATIENCE_MS = 180_000;
const PROMPT = 'Tell me of the river and of the hives that stand beside it.';

/** The gateway of the checkout in that folder on raw workerd, with a Redis of its own. */
export async function startSluice(checkout: string, { progress, children }: Run, name = 'Sluice'): Promise<GatewaySide> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-bench-gateway-'));
  const binary = await ensureRedisBinary(progress);
  const redis = await startRedisServer({
    binary,
    folder: join(folder, 'redis'),
    log: new ChildLog(join(folder, 'redis.log')),
    onCrash: report => progress(`redis ended (${report.how})`),
  });
  children.adopt(async () => {
    await redis.child.stop();
    await rm(folder, { recursive: true, force: true });
  });
  const port = await freePort();
  const adminKey = randomBytes(24).toString('hex');
  const from = (path: string) => import(pathToFileURL(join(checkout, path)).href);
  const { bundleGateway } = (await from('deploy/bundle-gateway.ts')) as typeof import('../deploy/bundle-gateway.ts');
  const { writeWorkerdConfig } = (await from('deploy/workerd-config.ts')) as typeof import('../deploy/workerd-config.ts');
  const [command, ...args] = await writeWorkerdConfig({
    bundlePath: await bundleGateway(folder),
    dataFolder: folder,
    port,
    bindings: { REDIS_URL: redis.url, SLUICE_ADMIN_KEY: adminKey, SLUICE_KEY_SECRET: randomBytes(24).toString('hex') },
  });
  await ready(children.start(process.execPath, [new URL('./instant-batcher.ts', import.meta.url).pathname, redis.url, MODEL]));
  // Its log goes to a file, as `npm start` has it.
  const log = openSync(join(folder, 'gateway.log'), 'w');
  const gateway = children.start(command!, args, { stdio: ['ignore', log, log] });
  closeSync(log);
  await answers(port, '/health');
  const makeKey = async (limits: object = {}) => {
    const reply = await fetch(`http://127.0.0.1:${port}/admin/keys`, {
      method: 'POST',
      headers: { authorization: `Bearer ${adminKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ tenant: 'bench', limits }),
    });
    if (!reply.ok) throw new Error(`no key: ${reply.status} ${await reply.text()}`);
    return ((await reply.json()) as { key: string }).key;
  };
  const as = (key: string) => ({ authorization: `Bearer ${key}` });
  const key = await makeKey();
  // Both have used up their limits with their first request.
  const busyKey = await makeKey({ requests_per_minute: 1 });
  const thirstyKey = await makeKey({ tokens_per_minute: 180 });
  const forged = `${key.slice(0, -43)}${randomBytes(32).toString('base64url')}`;
  return {
    name,
    port,
    pid: gateway.pid!,
    request: (tokenCount, paceMs) => post(as(key), tokenCount, paceMs),
    refusals: [
      { name: '401, a forged key', request: post(as(forged), 1), statuses: [401] },
      { name: '429, requests per minute', request: post(as(busyKey), 1), statuses: [429] },
      { name: '429, tokens per minute', request: post(as(thirstyKey), 60), statuses: [429] },
    ],
  };
}

/** Started before the peers that proxy to it, which may share it: they are measured one after the other. */
export async function startUpstream({ children }: Run): Promise<number> {
  const port = await freePort();
  await ready(children.start(process.execPath, [new URL('./instant-upstream.ts', import.meta.url).pathname, String(port)]));
  return port;
}

export async function startPeer(peer: Peer, upstreamPort: number, { children }: Run): Promise<GatewaySide> {
  const port = await freePort();
  const [command, ...args] = await peer.command({ port, upstreamPort });
  const child = children.start(command!, args, {
    cwd: tmpdir(),
    env: { ...process.env, ...peer.environment },
    stdio: ['ignore', 'ignore', 'ignore'],
  });
  await answers(port, '/');
  return {
    name: peer.name,
    port,
    pid: child.pid!,
    request: tokenCount => post(peer.headers({ upstreamPort }), tokenCount),
    refusals:
      peer.refusedHeaders === undefined
        ? []
        : [{ name: '401, a forged key', request: post(peer.refusedHeaders, 1), statuses: [400, 401, 403] }],
  };
}

/** The stand-in itself, for what of a peer's time is not its own. */
export function upstreamSide(port: number): GatewaySide {
  return { name: 'upstream alone', port, pid: 0, request: tokenCount => post({}, tokenCount), refusals: [] };
}

function post(headers: Record<string, string>, tokenCount: number, paceMs?: number): Buffer {
  const content = paceMs === undefined ? PROMPT : `${PROMPT} A word every ${paceMs} ms`;
  const body = JSON.stringify({ model: 'default', stream: true, max_tokens: tokenCount, messages: [{ role: 'user', content }] });
  const lines = [
    `POST ${PATH} HTTP/1.1`,
    'host: 127.0.0.1',
    'content-type: application/json',
    `content-length: ${Buffer.byteLength(body)}`,
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
  ];
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n${body}`);
}

/** It says so itself. */
async function ready(child: ChildProcess): Promise<void> {
  const failed = once(child, 'exit').then(() => {
    throw new Error(`${child.spawnargs.join(' ')} ended`);
  });
  failed.catch(() => undefined);
  child.stderr?.pipe(process.stderr);
  await Promise.race([once(child.stdout!, 'data'), failed]);
}

async function answers(port: number, path: string): Promise<void> {
  const giveUpAt = Date.now() + READY_PATIENCE_MS;
  for (;;) {
    const reply = await fetch(`http://127.0.0.1:${port}${path}`).catch(() => undefined);
    await reply?.arrayBuffer();
    if (reply !== undefined && reply.status < 500) return;
    if (Date.now() > giveUpAt) throw new Error(`nothing answers on port ${port}`);
    await new Promise(resolve => setTimeout(resolve, 100));
  }
}
