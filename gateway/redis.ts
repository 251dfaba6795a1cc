/** Redis: the connections of a broker. A command is answered or refused within a bound; nobody waits for a Redis that is away. */
import { ApiError } from '../shared/errors.ts';
import { clusterOptions, nameNodeFailure, singly } from '../shared/redis-cluster.ts';
import { type ClusterAddress, parseRedisUrl } from '../shared/redis-url.ts';
import { Cluster, type Pipeline, Redis, type RedisClient } from './redis-driver.js';

export interface RedisLinkOptions {
  url: string;
  /** Shows in Redis' CLIENT LIST. */
  name: string;
  /** Bounds connecting and the answer to a command. */
  timeoutMs: number;
  /** Called when the connection is lost and when it is back, not at each try in between. */
  onChange(state: LinkState, cause: string | undefined): void;
}

export type LinkState = 'connected' | 'lost';

const RETRY_STEP_MS = 50;
const RETRY_MAX_MS = 500;
/** So long ioredis waits before it sends a command anew that no node of a cluster takes at the moment; up to twice, to a wrong node and on from there. */
const REDIRECTION_MS = 100;
const REDIRECTIONS = 2;
/** Longer than the longest pause between two tries. */
const LOST_WAIT_MS = 1_000;
const SILENT_TIMEOUTS = 3;
const BREATH_TURNS = 16;
/** How ioredis says it. */
const NOT_SENT = "Stream isn't writeable";
const NOT_ANSWERED = 'timed out';
/** Commands that are late are looked for this often within the bound. */
const LOOKS = 10;
/** What a client is told to wait: about as long as a restart of Redis takes. */
const RETRY_AFTER_SECONDS = 2;

export class RedisLink {
  readonly client: RedisClient;
  readonly #timeoutMs: number;
  #state: 'connecting' | 'connected' | 'lost' = 'connecting';
  #cause: string | undefined;
  #isGathering = false;
  #answeredAt = Date.now();
  /** Commands without an answer, oldest first. One timer watches over all: one each costs more than the command. */
  readonly #underWay = new Set<{ dueLook: number; reject(error: Error): void }>();
  /** Looks so far: durations are counted in them, since the clock may be set. */
  #lookCount = 0;
  #watch: ReturnType<typeof setInterval> | undefined;

  constructor(options: RedisLinkOptions) {
    this.#timeoutMs = options.timeoutMs;
    this.client = openClient(options);
    this.client.on('error', error => {
      this.#cause = error.message;
    });
    this.client.on('ready', () => {
      if (this.#state !== 'connected') options.onChange('connected', undefined);
      this.#state = 'connected';
      this.#cause = undefined;
      this.#answeredAt = Date.now();
    });
    this.client.on('close', () => {
      if (this.#state === 'connected' || this.#state === 'connecting') options.onChange('lost', this.#cause);
      this.#state = 'lost';
    });
  }

  /** For good. */
  close(): void {
    this.client.disconnect();
  }

  /** Commands can be sent. */
  get isConnected(): boolean {
    return this.client.status === 'ready';
  }

  /**
   * The command's answer; whatever goes wrong is `dependency_unavailable`. A command may be given twice, when the connection was lost
   * before it could be sent.
   */
  async run<T>(command: (client: RedisClient) => Promise<T>): Promise<T> {
    for (let isRetry = false; ; isRetry = true) {
      if (!this.isConnected) await this.#ready();
      try {
        this.#gather();
        const answer = await this.#bounded(command(this.client));
        this.#answeredAt = Date.now();
        return answer;
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        if (message.includes(NOT_SENT) && !isRetry) continue;
        if (message.includes(NOT_ANSWERED)) this.#suspect();
        throw unavailable(message);
      }
    }
  }

  /** Commands that are given in one breath go out in one write, since a write costs more than most commands. */
  #gather(): void {
    if (this.#isGathering) return;
    this.#isGathering = true;
    const connections = 'nodes' in this.client ? this.client.nodes() : [this.client];
    const streams = connections.map(({ stream }) => stream).filter(stream => stream !== undefined);
    for (const stream of streams) stream.cork();
    void breath().then(() => {
      this.#isGathering = false;
      for (const stream of streams) stream.uncork();
    });
  }

  #bounded<T>(answer: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const entry = { dueLook: this.#lookCount + LOOKS + 1, reject };
      this.#underWay.add(entry);
      this.#watch ??= setInterval(() => this.#rejectLate(), this.#timeoutMs / LOOKS);
      answer.then(
        value => {
          this.#underWay.delete(entry);
          resolve(value);
        },
        error => {
          this.#underWay.delete(entry);
          reject(error);
        },
      );
    });
  }

  #rejectLate(): void {
    this.#lookCount += 1;
    for (const entry of this.#underWay) {
      if (entry.dueLook > this.#lookCount) return;
      this.#underWay.delete(entry);
      entry.reject(new Error(NOT_ANSWERED));
    }
    if (this.#watch !== undefined) clearInterval(this.#watch);
    this.#watch = undefined;
  }

  async #ready(): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    // Known to be away: one more try to connect fits in, and whoever asks again soon is answered soon.
    const limitMs = this.#state === 'lost' ? Math.min(LOST_WAIT_MS, this.#timeoutMs) : this.#timeoutMs;
    const timer = setTimeout(() => reject(unavailable(this.#cause)), limitMs);
    this.client.on('ready', resolve);
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      this.client.off('ready', resolve);
    }
  }

  /** A connection whose other end is gone without a word looks well for many minutes; one that is only slow still answers now and then. */
  #suspect(): void {
    if (!this.isConnected || Date.now() - this.#answeredAt < SILENT_TIMEOUTS * this.#timeoutMs) return;
    this.client.disconnect(true);
  }
}

const retryDelayMs = (attempt: number) => Math.min(attempt * RETRY_STEP_MS, RETRY_MAX_MS);

function openClient({ url, name, timeoutMs }: RedisLinkOptions): RedisClient {
  const address = parseRedisUrl(url);
  if ('nodes' in address) return openCluster(address, { name, timeoutMs });
  return new Redis({
    ...address,
    connectionName: name,
    connectTimeout: timeoutMs,
    // A command that a lost connection took with it is refused, not kept: by the time it went out its caller would be gone.
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    retryStrategy: retryDelayMs,
    // What was the master until a failover: behind the same address the new one answers.
    reconnectOnError: error => (error.message.startsWith('READONLY') ? 2 : false),
  });
}

function openCluster(address: ClusterAddress, { name, timeoutMs }: { name: string; timeoutMs: number }): Cluster {
  const cluster = new Cluster(address.nodes, {
    ...clusterOptions(address, { connectionName: name, connectTimeout: timeoutMs }),
    clusterRetryStrategy: retryDelayMs,
    // While a replica takes its master's place commands are kept, and not much longer than their callers wait.
    maxRedirections: Math.ceil((REDIRECTIONS * timeoutMs) / REDIRECTION_MS),
  });
  cluster.on('error', nameNodeFailure);
  cluster.pipeline = () => singly(cluster) as Pipeline;
  return cluster;
}

/** As long as BullMQ takes from a call to its command: so many turns of promises, without any I/O. */
async function breath(): Promise<void> {
  for (let turn = 0; turn < BREATH_TURNS; turn++) await undefined;
}

function unavailable(cause: string | undefined): ApiError {
  return new ApiError('dependency_unavailable', 'The queue is not reachable at the moment. Try again shortly.', {
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    cause,
  });
}
