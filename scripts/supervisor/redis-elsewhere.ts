/** RedisElsewhere: the check that somebody else's Redis can be used. What it says of an address never holds the password. */
import { Redis } from 'ioredis';
import { parseRedisUrl, type RedisAddress, redisLabel } from '../../shared/redis-url.ts';
import { isNewEnough } from './redis-binary.ts';
import { StartError } from './start-error.ts';

const PATIENCE_MS = 3_000;

/** Connects, asks for the version and leaves; resolves with the label. */
export async function checkRedis(url: string): Promise<string> {
  const { address, label } = read(url);
  const redis = new Redis({
    ...address,
    sentinelRetryStrategy: () => null,
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

function read(url: string): { address: RedisAddress; label: string } {
  try {
    return { address: parseRedisUrl(url), label: redisLabel(url) };
  } catch (thrown) {
    throw new StartError(`The Redis address cannot be used: ${(thrown as Error).message}.`);
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
