/**
 * Heartbeat: writes this batcher's card once an interval, hears whether it is asked to drain, and takes the card away at the end. A card is
 * dated by the clock of Redis, which all who read it have in common.
 */
import type { BatcherCard } from '../shared/batcher-card.ts';
import { BATCHER_CARDS, CARD_INTERVAL_MS, CARD_STALE_MS, drainKey } from '../shared/keys.ts';
import { type RedisClient, redisNow } from './redis.ts';

export class Heartbeat {
  readonly #redis: RedisClient;
  readonly #card: () => Promise<BatcherCard>;
  readonly #onDrainAsked: () => void;
  #isDrainAsked = false;
  #timer: NodeJS.Timeout | undefined;

  /** `onDrainAsked` is called once, however often it is asked. */
  constructor(redis: RedisClient, card: () => Promise<BatcherCard>, onDrainAsked: () => void) {
    this.#redis = redis;
    this.#card = card;
    this.#onDrainAsked = onDrainAsked;
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
    await this.#redis.hdel(BATCHER_CARDS, (await this.#card()).batcherId);
  }

  async #write(): Promise<void> {
    const card = { ...(await this.#card()), writtenAt: await redisNow(this.#redis) };
    await this.#redis.hset(BATCHER_CARDS, card.batcherId, JSON.stringify(card));
    await this.#sweep(card.writtenAt);
    await this.#hear(card);
  }

  /** A request names the process that it means, since another may have its id by now. */
  async #hear({ batcherId, startedAt }: BatcherCard): Promise<void> {
    if (this.#isDrainAsked || (await this.#redis.get(drainKey(batcherId))) !== String(startedAt)) return;
    this.#isDrainAsked = true;
    this.#onDrainAsked();
  }

  /** Cards of batchers that died without taking theirs away, and what is no card of any version. */
  async #sweep(now: number): Promise<void> {
    const cards = await this.#redis.hgetall(BATCHER_CARDS);
    const longDead = Object.entries(cards).filter(([, json]) => !(Math.abs(now - writtenAt(json)) < 10 * CARD_STALE_MS));
    if (longDead.length > 0) await this.#redis.hdel(BATCHER_CARDS, ...longDead.map(([id]) => id));
  }
}

/** NaN for what is no card. */
function writtenAt(json: string): number {
  try {
    return Number((JSON.parse(json) as { writtenAt?: unknown } | null)?.writtenAt ?? Number.NaN);
  } catch {
    return Number.NaN;
  }
}
