/** Redis: the connections of a broker. A command is answered or refused within a bound; nobody waits for a Redis that is away. */
import { ApiError } from '../shared/errors.ts';
import { Redis } from './redis-driver.js';

export interface RedisLinkOptions {
  url: string;
  /** Shows in Redis' CLIENT LIST. */
  name: string;
  /** Bounds connecting and the answer to a command. */
  timeoutMs: number;
  /** Commands block on purpose, so their answers are not bounded here. */
  isBlocking: boolean;
  /** Called when the connection is lost and when it is back, not at each try in between. */
  onChange(state: 'connected' | 'lost', cause: string | undefined): void;
}

const RETRY_STEP_MS = 50;
const RETRY_MAX_MS = 1_000;
/** What a client is told to wait: about as long as a restart of Redis takes. */
const RETRY_AFTER_SECONDS = 2;

export class RedisLink {
  readonly client: Redis;
  readonly #timeoutMs: number;
  #state: 'connecting' | 'connected' | 'lost' = 'connecting';
  #cause: string | undefined;

  constructor(options: RedisLinkOptions) {
    this.#timeoutMs = options.timeoutMs;
    this.client = new Redis(options.url, {
      connectionName: options.name,
      connectTimeout: options.timeoutMs,
      // A command that a lost connection took with it is refused, not kept: by the time it went out its caller would be gone.
      enableOfflineQueue: false,
      maxRetriesPerRequest: 0,
      retryStrategy: attempt => Math.min(attempt * RETRY_STEP_MS, RETRY_MAX_MS),
      ...(!options.isBlocking && { commandTimeout: options.timeoutMs }),
    });
    this.client.on('error', error => {
      this.#cause = error.message;
    });
    this.client.on('ready', () => {
      if (this.#state !== 'connected') options.onChange('connected', undefined);
      this.#state = 'connected';
      this.#cause = undefined;
    });
    this.client.on('close', () => {
      if (this.#state === 'connected' || this.#state === 'connecting') options.onChange('lost', this.#cause);
      this.#state = 'lost';
    });
  }

  get isConnected(): boolean {
    return this.client.status === 'ready';
  }

  /** Resolves when commands can be sent; throws `dependency_unavailable` when that takes too long. */
  async ready(): Promise<void> {
    if (this.isConnected) return;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const timer = setTimeout(() => reject(unavailable(this.#cause)), this.#timeoutMs);
    this.client.on('ready', resolve);
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      this.client.off('ready', resolve);
    }
  }

  /** The command's answer; whatever goes wrong is `dependency_unavailable`. */
  async run<T>(command: (client: Redis) => Promise<T>): Promise<T> {
    await this.ready();
    try {
      return await command(this.client);
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      // A connection whose other end is gone without a word looks well for many minutes.
      if (message.includes('timed out') && this.isConnected) this.client.disconnect(true);
      throw unavailable(message);
    }
  }
}

function unavailable(cause: string | undefined): ApiError {
  return new ApiError('dependency_unavailable', 'The queue is not reachable at the moment. Try again shortly.', {
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    cause,
  });
}
