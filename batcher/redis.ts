/** Redis: how this process connects, and the Lua commands it adds; commands outlive a lost connection and are sent again. */
import { readFileSync } from 'node:fs';
import { type ChainableCommander, type ClientContext, Cluster, Redis, type Result } from 'ioredis';
import { CARD_CLOCK } from '../shared/batcher-card.ts';
import { BATCHER_CARDS } from '../shared/keys.ts';
import { clusterOptions, nameNodeFailure, singly } from '../shared/redis-cluster.ts';
import { type ClusterAddress, parseRedisUrl, type ServerAddress } from '../shared/redis-url.ts';

declare module 'ioredis' {
  interface RedisCommander<Context extends ClientContext> {
    /** The number of keys goes first. */
    recordEvents(...args: (string | number)[]): Result<string[], Context>;
    claimRecord(...args: (string | number)[]): Result<string[], Context>;
    publishPrefixes(...args: (string | number)[]): Result<string, Context>;
    retireQueue(...args: (string | number)[]): Result<number, Context>;
  }
}

/** Of one server, or of a cluster. */
export type RedisClient = Redis | Cluster;

const RECONNECT_STEP_MS = 50;
const RECONNECT_MAX_MS = 1_000;

const retryDelayMs = (attempt: number) => Math.min(RECONNECT_STEP_MS * attempt, RECONNECT_MAX_MS);

/** For BullMQ and for us alike: never give up, reconnect within a second. Throws for a cluster, to which one connection is too few. */
export function connectionOptions(url: string) {
  const address = parseRedisUrl(url);
  if ('nodes' in address) throw new TypeError('a cluster has more than one connection');
  return serverOptions(address);
}

function serverOptions(address: ServerAddress) {
  return {
    ...address,
    maxRetriesPerRequest: null,
    retryStrategy: retryDelayMs,
    // A replica that was promoted away answers READONLY: connect anew and send the command again.
    reconnectOnError: (error: Error) => (error.message.startsWith('READONLY') ? (2 as const) : false),
  };
}

/** Without our commands. */
export function openRedis(url: string): RedisClient {
  const address = parseRedisUrl(url);
  return 'nodes' in address ? openCluster(address) : new Redis(serverOptions(address));
}

function openCluster(address: ClusterAddress): Cluster {
  const cluster = new Cluster(address.nodes, {
    ...clusterOptions(address, { maxRetriesPerRequest: null }),
    clusterRetryStrategy: retryDelayMs,
    // A command waits for whoever has its key next, however long that takes.
    maxRedirections: Number.POSITIVE_INFINITY,
  });
  cluster.on('error', nameNodeFailure);
  cluster.pipeline = () => singly(cluster) as ChainableCommander;
  return cluster;
}

export function connectRedis(url: string): RedisClient {
  const redis = openRedis(url);
  redis.defineCommand('recordEvents', { lua: script('record-events.lua') });
  redis.defineCommand('claimRecord', { numberOfKeys: 3, lua: script('claim-record-3.lua') });
  redis.defineCommand('publishPrefixes', { numberOfKeys: 1, lua: script('publish-prefixes-1.lua') });
  redis.defineCommand('retireQueue', { numberOfKeys: 5, lua: script('retire-queue-5.lua') });
  return redis;
}

/** Epoch milliseconds by the clock that cards are dated by. */
export async function redisNow(redis: RedisClient): Promise<number> {
  const [seconds, microseconds] = (await redis.eval(CARD_CLOCK, 1, BATCHER_CARDS)) as [string, string];
  return Number(seconds) * 1_000 + Math.floor(Number(microseconds) / 1_000);
}

function script(name: string): string {
  return readFileSync(new URL(`commands/${name}`, import.meta.url), 'utf8');
}
