/** RedisServer: a private redis-server for one test file, on a free port, its files in a temporary folder. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { startChild } from './child.ts';
import { freePort } from './free-port.ts';

export interface RedisServer {
  url: string;
  port: number;
  /** Ends the process and keeps what it had stored. */
  halt(): Promise<void>;
  /** Starts it again on the same port. */
  resume(): Promise<void>;
  /** Ends the process and removes its files. */
  stop(): Promise<void>;
}

/** `redis-server` must be installed. Every write is on disk before it is answered, so that halt loses nothing; not so if it need not be durable. */
export async function startRedis({ isDurable = true }: { isDurable?: boolean } = {}): Promise<RedisServer> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-redis-'));
  const port = await freePort();
  const url = `redis://127.0.0.1:${port}`;
  const start = async () => {
    const child = startChild('redis-server', [
      ...['--port', String(port), '--bind', '127.0.0.1', '--dir', folder, '--save', ''],
      ...(isDurable ? ['--appendonly', 'yes', '--appendfsync', 'always'] : []),
    ]);
    await child.until(() => ping(url));
    return child;
  };
  let child = await start();
  return {
    url,
    port,
    halt: () => child.stop(),
    async resume() {
      child = await start();
    },
    async stop() {
      await child.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** On a connection that is closed afterwards. */
export async function onRedis<T>({ url }: Pick<RedisServer, 'url'>, work: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis(url);
  try {
    return await work(redis);
  } finally {
    redis.disconnect();
  }
}

/** From here on the replica knows all that the master knows. */
export async function follow(replica: RedisServer, master: RedisServer): Promise<void> {
  await onRedis(replica, redis => redis.replicaof('127.0.0.1', master.port));
  await inStep(replica);
}

/** Waits until the replica has all that its master had. */
export async function inStep(replica: RedisServer): Promise<void> {
  await onRedis(replica, async redis => {
    while (!(await redis.info('replication')).includes('master_link_status:up')) await new Promise(resolve => setTimeout(resolve, 20));
  });
}

async function ping(url: string): Promise<void> {
  const redis = new Redis(url, { lazyConnect: true, retryStrategy: () => null, maxRetriesPerRequest: 0 });
  redis.on('error', () => undefined);
  try {
    await redis.connect();
    await redis.ping();
  } finally {
    redis.disconnect();
  }
}
