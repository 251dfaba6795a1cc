/** RedisElsewhere: the check that somebody else's Redis can be used. What it says of an address never holds the password. */
import { Redis } from 'ioredis';
import { isNewEnough } from './redis-binary.ts';
import { StartError } from './start-error.ts';

const PATIENCE_MS = 3_000;

/** `redis://host:port/db` without user and password; throws a StartError for what is no such URL. */
export function redisLabel(url: string): string {
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    throw new StartError('The Redis address is no URL. Give one such as redis://127.0.0.1:6379 or rediss://:password@host:6380/0.');
  }
  if (parsed.protocol !== 'redis:' && parsed.protocol !== 'rediss:') {
    throw new StartError(`The Redis address begins with ${parsed.protocol}//; it must begin with redis:// or rediss://.`);
  }
  if (parsed.hostname === '') throw new StartError('The Redis address names no host.');
  return `${parsed.protocol}//${parsed.hostname}:${parsed.port || 6379}${parsed.pathname.replace(/^\/$/, '')}`;
}

/** Connects, asks for the version and leaves; resolves with the label. */
export async function checkRedis(url: string): Promise<string> {
  const label = redisLabel(url);
  const redis = new Redis(url, {
    lazyConnect: true,
    connectTimeout: PATIENCE_MS,
    commandTimeout: PATIENCE_MS,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
  });
  let failure: Error | undefined;
  redis.on('error', error => {
    failure ??= error;
  });
  try {
    await redis.connect();
    const server = await redis.info('server');
    const version = /^(?:valkey_version|redis_version):(\S+)/m.exec(server)?.[1] ?? '0';
    if (!isNewEnough(version)) throw new StartError(`Redis at ${label} is version ${version}; Sluice needs 6.2 or newer.`);
    return label;
  } catch (thrown) {
    if (thrown instanceof StartError) throw thrown;
    throw new StartError(sentence(label, failure ?? (thrown as Error)), { cause: thrown });
  } finally {
    redis.disconnect();
  }
}

function sentence(label: string, error: Error): string {
  if (/WRONGPASS|NOAUTH|invalid password|invalid username/i.test(error.message)) {
    return `Redis at ${label} refuses the user or password of the address.`;
  }
  const why = (error as NodeJS.ErrnoException).code ?? error.message;
  if (/CERT|SELF_SIGNED|UNABLE_TO_(GET|VERIFY)/.test(why)) {
    return `The certificate of Redis at ${label} is not trusted (${why}). Name a file with the certificate of its authority in NODE_EXTRA_CA_CERTS.`;
  }
  return `Redis at ${label} does not answer (${why}). Start it, or leave out --redis and REDIS_URL: then Sluice runs a Redis of its own.`;
}
