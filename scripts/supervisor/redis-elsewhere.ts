/** RedisElsewhere: the check that somebody else's Redis can be used. What it says of an address never holds the password. */
import { Cluster, Redis } from 'ioredis';
import { clusterOptions } from '../../shared/redis-cluster.ts';
import { parseRedisUrl, type RedisAddress, redisLabel } from '../../shared/redis-url.ts';
import { isNewEnough } from './redis-binary.ts';
import { StartError } from './start-error.ts';

const PATIENCE_MS = 3_000;

/** Connects, asks for the version and leaves; resolves with the label. */
export async function checkRedis(url: string): Promise<string> {
  const { address, label } = read(url);
  const redis = open(address);
  let failure: Error | undefined;
  redis.on('error', (error: Error & { lastNodeError?: Error }) => {
    failure ??= error.lastNodeError ?? error;
  });
  try {
    await connected(redis);
    const server = await redis.info('server');
    const version = /^(?:valkey_version|redis_version):(\S+)/m.exec(server)?.[1] ?? '0';
    if (!isNewEnough(version)) throw new StartError(`Redis at ${label} is version ${version}; Sluice needs 6.2 or newer.`);
    if (!redis.isCluster && /^redis_mode:cluster/m.test(server)) {
      throw new StartError(
        `Redis at ${label} is a node of a cluster. Begin its address with redis+cluster://, or rediss+cluster:// for TLS.`,
      );
    }
    return label;
  } catch (thrown) {
    if (thrown instanceof StartError) throw thrown;
    throw new StartError(sentence(label, failure ?? (thrown as Error)), { cause: thrown });
  } finally {
    redis.disconnect();
  }
}

function open(address: RedisAddress): Redis | Cluster {
  const patience = { connectTimeout: PATIENCE_MS, commandTimeout: PATIENCE_MS };
  if ('nodes' in address) {
    return new Cluster(address.nodes, {
      ...clusterOptions(address, patience),
      lazyConnect: true,
      slotsRefreshTimeout: PATIENCE_MS,
      clusterRetryStrategy: () => null,
    });
  }
  return new Redis({
    ...address,
    ...patience,
    sentinelRetryStrategy: () => null,
    lazyConnect: true,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
  });
}

/** A client of a cluster that says of itself that it is down ends without a word. */
async function connected(redis: Redis | Cluster): Promise<void> {
  const ended = new Promise<never>((_, reject) => redis.once('end', () => reject(new Error('the cluster is down'))));
  await Promise.race([redis.connect(), ended]);
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
