/** Heartbeat: writes this batcher's card once an interval and takes it away at the end. */
import type { Redis } from 'ioredis';
import type { BatcherCard } from '../shared/batcher-card.ts';
import { BATCHER_CARDS, CARD_INTERVAL_MS, CARD_STALE_MS } from '../shared/keys.ts';

export class Heartbeat {
  readonly #redis: Redis;
  readonly #card: () => BatcherCard;
  #timer: NodeJS.Timeout | undefined;

  constructor(redis: Redis, card: () => BatcherCard) {
    this.#redis = redis;
    this.#card = card;
  }

  async start(): Promise<void> {
    await this.#write();
    this.#timer = setInterval(() => void this.#write().catch(() => undefined), CARD_INTERVAL_MS);
  }

  /** At once, when the state changed. */
  async beat(): Promise<void> {
    await this.#write();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#redis.hdel(BATCHER_CARDS, this.#card().batcherId);
  }

  async #write(): Promise<void> {
    const card = this.#card();
    await this.#redis.hset(BATCHER_CARDS, card.batcherId, JSON.stringify(card));
    await this.#sweep(card.writtenAt);
  }

  /** Cards of batchers that died without taking theirs away. */
  async #sweep(now: number): Promise<void> {
    const cards = await this.#redis.hgetall(BATCHER_CARDS);
    const longDead = Object.entries(cards).filter(([, json]) => {
      const writtenAt = Number((JSON.parse(json) as { writtenAt?: unknown }).writtenAt);
      return !(now - writtenAt < 10 * CARD_STALE_MS);
    });
    if (longDead.length > 0) await this.#redis.hdel(BATCHER_CARDS, ...longDead.map(([id]) => id));
  }
}
