/**
 * Stack: the product as `npm start` runs it, private to one bench: Redis, batcher and gateway on free ports, in a data folder of their own that
 * goes when they end.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ChildLog } from '../scripts/supervisor/child-log.ts';
import { openDataFolder } from '../scripts/supervisor/data-folder.ts';
import { developmentKey } from '../scripts/supervisor/development-key.ts';
import { claimPort, freePort } from '../scripts/supervisor/free-port.ts';
import { ensureRedisBinary } from '../scripts/supervisor/redis-binary.ts';
import { startRedisServer } from '../scripts/supervisor/redis-server.ts';
import { Stack as Installation } from '../scripts/supervisor/stack.ts';
import { prepareEmbeddingModel } from '../scripts/supervisor/start-model.ts';
import type { BenchRun } from './bench.ts';
import type { Target } from './load-client.ts';
import { MetricsPage } from './metrics-page.ts';
import type { BenchModel } from './model.ts';

const HOST = '127.0.0.1';

export interface Stack extends AsyncDisposable {
  target: Target;
  redisUrl: string;
  /** Where its programs' logs are, one file each. */
  logFolder: string;
  /** Of the one batcher. Throws while it is not running. */
  batcherPid(): number;
  /** Of those that run. */
  readonly batcherPids: readonly number[];
  /** Undefined while it is not running. */
  gatewayPid(): number | undefined;
  redisPid(): number | undefined;
  /** Starts batchers again that ended because they were asked to. */
  restartDrained(): void;
  /** What the one batcher has counted so far. */
  metrics(): Promise<MetricsPage>;
  close(): Promise<void>;
}

export interface StackOptions extends Pick<BenchRun, 'progress' | 'children'> {
  model: BenchModel;
  /** Name or folder of one besides. */
  embeddingModel?: string;
  threads: number;
  /** Options of the batcher besides threads and metrics port. */
  batcherArguments?: readonly string[];
  /** Of more than one, and beside an embedding model, metrics and process ids are those of none. */
  batcherCount?: number;
  /** A Redis that is there already; otherwise one of the stack's own, which redisPid() then tells. */
  redisUrl?: string;
  /** Settings of the gateway, by their names. */
  bindings?: Readonly<Record<string, string>>;
}

/** An answer that was kept is no work to measure. */
const NO_CACHE = { SLUICE_CACHE_TTL_MS: '0' };

export async function startStack(options: StackOptions): Promise<Stack> {
  const { model, embeddingModel, threads, batcherArguments = [], batcherCount = 1, bindings = {}, progress, children } = options;
  const folder = await mkdtemp(join(tmpdir(), 'sluice-bench-'));
  const data = openDataFolder(folder);
  const key = developmentKey(data.path);
  // Our own Redis rather than the installation's, because the bench looks into it.
  const redis =
    options.redisUrl === undefined
      ? await startRedisServer({
          binary: await ensureRedisBinary(progress),
          folder: data.redis,
          log: new ChildLog(join(data.logs, 'redis.log')),
          onCrash: report => progress(`redis ended (${report.how})`),
        })
      : { url: options.redisUrl, child: undefined };
  const metricsPort = await freePort(HOST);
  const installation = new Installation(
    {
      data,
      host: HOST,
      port: await claimPort(0, HOST),
      developmentKey: key,
      redisUrl: redis.url,
      runtime: 'workerd',
      batcherCount,
      batcherArguments: [
        ...['--threads', String(threads)],
        ...(batcherCount === 1 && embeddingModel === undefined ? ['--metrics-port', String(metricsPort)] : []),
        ...batcherArguments,
      ],
      bindings: { ...NO_CACHE, ...bindings },
    },
    { done: (part, detail) => progress(`${part}: ${detail}`), note: progress, warn: line => progress(`warning: ${line}`) },
  );
  let closing: Promise<void> | undefined;
  const close = () => {
    closing ??= (async () => {
      await installation.stop();
      await redis.child?.stop();
      await rm(folder, { recursive: true, force: true });
    })();
    return closing;
  };
  children.adopt(close);
  try {
    const screen = { progress: () => undefined, note: progress };
    await installation.start(
      Promise.resolve({ directory: model.directory, name: model.name }),
      embeddingModel === undefined ? undefined : prepareEmbeddingModel(embeddingModel, screen),
    );
  } catch (thrown) {
    await close();
    throw thrown;
  }
  return {
    target: { baseUrl: `${installation.url}/v1`, apiKey: key },
    redisUrl: redis.url,
    logFolder: data.logs,
    batcherPid() {
      const [pid] = installation.batcherPids;
      if (pid === undefined) throw new Error('the batcher is not running');
      return pid;
    },
    get batcherPids() {
      return installation.batcherPids;
    },
    gatewayPid: () => installation.gatewayPid,
    redisPid: () => redis.child?.pid,
    restartDrained: () => installation.restartDrained(),
    metrics: () => MetricsPage.read(`http://${HOST}:${metricsPort}/metrics`),
    close,
    [Symbol.asyncDispose]: close,
  };
}
