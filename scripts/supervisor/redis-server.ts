/**
 * RedisServer: a Redis of one's own: on a free port of the loopback interface, behind a random password, keeping every write in an append-only
 * file of the given folder. A Redis that an earlier, killed start left on that folder is ended first, so the file has one writer.
 */
import { randomBytes } from 'node:crypto';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ChildLog } from './child-log.ts';
import { ChildProcess, type CrashReport } from './child-process.ts';
import { freePort } from './free-port.ts';
import { askRedis, type RedisAddress } from './redis-prompt.ts';
import { StartError } from './start-error.ts';

const PORT_TRIES = 5;
/** A large append-only file takes a while to load. */
const LOAD_PATIENCE_MS = 120_000;
const STRAY_PATIENCE_MS = 5_000;
const GRACE_MS = 1_500;

export interface RedisPlan {
  /** redis-server or valkey-server. */
  binary: string;
  folder: string;
  log?: ChildLog;
  onCrash: (report: CrashReport) => void;
  /** Aborted while it starts: it is stopped, and the reason thrown. */
  signal?: AbortSignal;
}

export interface RedisServer {
  url: string;
  port: number;
  child: ChildProcess;
}

export async function startRedisServer(plan: RedisPlan): Promise<RedisServer> {
  mkdirSync(plan.folder, { recursive: true, mode: 0o700 });
  await endStray(plan.folder);
  for (let attempt = 1; ; attempt += 1) {
    const address = { port: await freePort(), password: randomBytes(24).toString('hex') };
    const configuration = writeConfiguration(plan.folder, address);
    const failure = Promise.withResolvers<CrashReport>();
    const child = new ChildProcess({
      name: 'redis',
      command: [plan.binary, configuration],
      folder: plan.folder,
      ...(plan.log !== undefined && { log: plan.log }),
      onCrash: plan.onCrash,
      onFailure: failure.resolve,
      graceMs: GRACE_MS,
      deathSignal: 'SIGTERM',
    });
    child.start();
    const failed = await Promise.race([failure.promise, answered(child, address, plan.signal)]);
    if (failed === undefined) {
      child.ready();
      return { url: `redis://:${address.password}@127.0.0.1:${address.port}`, port: address.port, child };
    }
    const lastLines = failed.lastLines.slice(-5);
    // Somebody took the port between the asking and the listening.
    if (attempt < PORT_TRIES && lastLines.some(line => line.includes('already in use'))) continue;
    throw new StartError(`Redis does not start (${failed.how}):\n${lastLines.map(line => `  ${line}`).join('\n')}`);
  }
}

/** Undefined once it answers; stops it and throws when it never does, or is no longer wanted. */
async function answered(child: ChildProcess, address: RedisAddress, signal: AbortSignal | undefined): Promise<undefined> {
  const giveUpAt = Date.now() + LOAD_PATIENCE_MS;
  while (child.state === 'running') {
    if ((await askRedis(address, ['PING']))[0] === '+PONG') return;
    if (signal?.aborted || Date.now() > giveUpAt) {
      await child.stop();
      signal?.throwIfAborted();
      throw new StartError(`Redis does not answer within ${LOAD_PATIENCE_MS / 1000} s; see its log.`);
    }
    await sleep(10);
  }
  // It ended: the failure that lost this race by a moment tells why.
  return new Promise(() => {});
}

/** Everything in a file that only its owner reads: arguments would show the password to every user of the machine. */
function writeConfiguration(folder: string, { port, password }: RedisAddress): string {
  const path = join(folder, 'redis.conf');
  const lines = [
    'bind 127.0.0.1',
    `port ${port}`,
    `requirepass ${password}`,
    `dir ${quoted(folder)}`,
    'daemonize no',
    'appendonly yes',
    // At most the last second of writes is lost when the machine itself stops.
    'appendfsync everysec',
    'save ""',
    // Jobs must not vanish when memory is short: a write fails instead.
    'maxmemory-policy noeviction',
  ];
  writeFileSync(path, `${lines.join('\n')}\n`, { mode: 0o600 });
  chmodSync(path, 0o600);
  return path;
}

/** Redis reads C-like escapes between double quotes. */
function quoted(text: string): string {
  return `"${text.replace(/["\\]/g, '\\$&')}"`;
}

/** The configuration that lies here names port and password of the last one; who accepts that password is that one. */
async function endStray(folder: string): Promise<void> {
  const address = readAddress(join(folder, 'redis.conf'));
  if (address === undefined) return;
  const giveUpAt = Date.now() + STRAY_PATIENCE_MS;
  // Ours says PONG, or LOADING; anything else on that port is a stranger, whom AUTH already told us apart.
  while (/^(\+PONG|-LOADING)/.test((await askRedis(address, ['PING']))[0] ?? '')) {
    await askRedis(address, ['SHUTDOWN NOSAVE']);
    if (Date.now() > giveUpAt) {
      throw new StartError(`An earlier Redis still runs on ${folder} (port ${address.port}) and does not end. Stop it first.`);
    }
    await sleep(50);
  }
}

function readAddress(path: string): RedisAddress | undefined {
  try {
    const text = readFileSync(path, 'utf8');
    const port = Number(/^port (\d+)$/m.exec(text)?.[1]);
    const password = /^requirepass ([0-9a-f]+)$/m.exec(text)?.[1];
    return port > 0 && password !== undefined ? { port, password } : undefined;
  } catch {
    return undefined;
  }
}
