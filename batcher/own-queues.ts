/**
 * OwnQueues: looks after the queues that are meant for one batcher each. A batcher keeps its own on the list; when its card is stale,
 * draining or gone, every other batcher of the model serves its queue, until it is empty and leaves the list.
 */
import { parseCard } from '../shared/batcher-card.ts';
import { BATCHER_CARDS, CARD_INTERVAL_MS, ownQueue, ownQueuesKey, queueBeginning, queueKey } from '../shared/keys.ts';
import { type RedisClient, redisNow } from './redis.ts';

export interface OwnQueuesOptions {
  redis: RedisClient;
  model: string;
  batcherId: string;
  /** Which batchers' queues are to be served besides the own one; called each time that it was looked up. */
  onOrphans(batcherIds: readonly string[]): void;
  failed(error: Error): void;
}

/** Two cards missed. Whoever is only slow loses nothing: a job has one holder, whoever takes it. */
const ADOPT_AFTER_MS = 2.5 * CARD_INTERVAL_MS;

export class OwnQueues {
  readonly #options: OwnQueuesOptions;
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> | undefined;

  constructor(options: OwnQueuesOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    await this.look();
    this.#timer = setInterval(() => void this.look().catch(this.#options.failed), CARD_INTERVAL_MS);
  }

  /** Jobs that wait in the own queue. */
  async waitingCount(): Promise<number> {
    const { redis, model, batcherId } = this.#options;
    const name = ownQueue(batcherId);
    const [came, waiting] = await Promise.all([
      redis.llen(queueKey(model, name, 'wait')),
      redis.zcard(queueKey(model, name, 'prioritized')),
    ]);
    return came + waiting;
  }

  /** Its own queue is left to others, or is gone if it is empty. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#looking?.catch(() => undefined);
    await this.#retire(this.#options.batcherId);
  }

  /** Throws when Redis is away. */
  look(): Promise<void> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
    });
    return this.#looking;
  }

  async #look(): Promise<void> {
    const { redis, model, batcherId, onOrphans } = this.#options;
    await redis.sadd(ownQueuesKey(model), batcherId);
    const [ids, cards, now] = await Promise.all([redis.smembers(ownQueuesKey(model)), redis.hgetall(BATCHER_CARDS), redisNow(redis)]);
    const orphans = ids.filter(id => id !== batcherId && !isServing(cards[id], now));
    const standing = await Promise.all(orphans.map(id => this.#retire(id)));
    onOrphans(orphans.filter((_, index) => standing[index] === 'in use'));
  }

  async #retire(batcherId: string): Promise<'gone' | 'in use'> {
    const { redis, model } = this.#options;
    const name = ownQueue(batcherId);
    const isGone = await redis.retireQueue(
      ownQueuesKey(model),
      queueKey(model, name, 'wait'),
      queueKey(model, name, 'prioritized'),
      queueKey(model, name, 'active'),
      queueBeginning(model, name),
      batcherId,
    );
    return isGone === 1 ? 'gone' : 'in use';
  }
}

function isServing(json: string | undefined, now: number): boolean {
  const card = json === undefined ? undefined : parseCard(json);
  return card !== undefined && card.state === 'serving' && Math.abs(now - card.writtenAt) < ADOPT_AFTER_MS;
}
