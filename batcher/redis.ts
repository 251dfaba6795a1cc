/** Redis: how this process connects, and the Lua commands it adds; commands outlive a lost connection and are sent again. */
import { readFileSync } from 'node:fs';
import { type ClientContext, Redis, type Result } from 'ioredis';
import { parseRedisUrl } from '../shared/redis-url.ts';

declare module 'ioredis' {
  interface RedisCommander<Context extends ClientContext> {
    appendEvents(...args: (string | number)[]): Result<string, Context>;
    claimRecord(...args: (string | number)[]): Result<string[], Context>;
    publishPrefixes(...args: (string | number)[]): Result<string, Context>;
    retireQueue(...args: (string | number)[]): Result<number, Context>;
  }
}

const RECONNECT_MAX_MS = 1_000;

/** For BullMQ and for us alike: never give up, reconnect within a second. */
export function connectionOptions(url: string) {
  return {
    ...parseRedisUrl(url),
    maxRetriesPerRequest: null,
    retryStrategy: (attempt: number) => Math.min(50 * attempt, RECONNECT_MAX_MS),
    // A replica that was promoted away answers READONLY: connect anew and send the command again.
    reconnectOnError: (error: Error) => (error.message.startsWith('READONLY') ? (2 as const) : false),
  };
}

export function connectRedis(url: string): Redis {
  const redis = new Redis(connectionOptions(url));
  redis.defineCommand('appendEvents', { numberOfKeys: 3, lua: script('append-events-3.lua') });
  redis.defineCommand('claimRecord', { numberOfKeys: 3, lua: script('claim-record-3.lua') });
  redis.defineCommand('publishPrefixes', { numberOfKeys: 1, lua: script('publish-prefixes-1.lua') });
  redis.defineCommand('retireQueue', { numberOfKeys: 5, lua: script('retire-queue-5.lua') });
  return redis;
}

/** Epoch milliseconds by the clock of Redis. */
export async function redisNow(redis: Redis): Promise<number> {
  const [seconds, microseconds] = await redis.time();
  return Number(seconds) * 1_000 + Math.floor(Number(microseconds) / 1_000);
}

function script(name: string): string {
  return readFileSync(new URL(`commands/${name}`, import.meta.url), 'utf8');
}
