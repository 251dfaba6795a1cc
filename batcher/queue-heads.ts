/**
 * QueueHeads: which of several BullMQ queues has the job that is next, told by priority; and waiting for one on any of them at once.
 */
import { queueKey } from '../shared/keys.ts';
import type { RedisClient } from './redis.ts';

export interface QueueHeadsOptions {
  model: string;
  /** For commands that are answered at once. */
  redis: RedisClient;
  /** Blocks while it waits. */
  blocking: RedisClient;
}

/** BullMQ's score of a waiting job is its priority times this, plus a number that counts up. */
const SCORES_PER_PRIORITY = 0x1_0000_0000;
/** Seconds that one wait lasts at most: queues may have come meanwhile. */
const WAIT_S = 1;
/** An answer that is this much late will not come. */
const GRACE_MS = 3_000;

export class QueueHeads {
  readonly #options: QueueHeadsOptions;

  constructor(options: QueueHeadsOptions) {
    this.#options = options;
  }

  /**
   * The queue to take from: one to which a job came back from a silent holder, else the one whose head has the lowest priority number, the
   * earlier in the list where they are level. Undefined when all are empty.
   */
  async foremost(queueNames: readonly string[]): Promise<string | undefined> {
    const { model, redis } = this.#options;
    const pipeline = redis.pipeline();
    for (const name of queueNames) {
      pipeline.llen(queueKey(model, name, 'wait'));
      pipeline.zrange(queueKey(model, name, 'prioritized'), '0', '0', 'WITHSCORES');
    }
    const answers = ((await pipeline.exec()) ?? []).map(([error, answer]) => {
      if (error) throw error;
      return answer;
    });
    let best: { name: string; priority: number } | undefined;
    for (const [index, name] of queueNames.entries()) {
      const waitCount = answers[2 * index] as number;
      const score = (answers[2 * index + 1] as string[])[1];
      if (waitCount === 0 && score === undefined) continue;
      const priority = waitCount > 0 ? -1 : Math.floor(Number(score) / SCORES_PER_PRIORITY);
      if (best === undefined || priority < best.priority) best = { name, priority };
    }
    return best?.name;
  }

  /** Waits a while until one of them may have a job: then its name. It is the caller's to look there, or to call somebody else. */
  async wait(queueNames: readonly string[]): Promise<string | undefined> {
    const { model, blocking } = this.#options;
    const markers = queueNames.map(name => queueKey(model, name, 'marker'));
    // Half a connection would wait for ever.
    const watchdog = setTimeout(() => blocking.disconnect(true), WAIT_S * 1000 + GRACE_MS);
    try {
      const popped = await blocking.bzpopmin(...markers, WAIT_S);
      return popped === null ? undefined : queueNames[markers.indexOf(popped[0])];
    } finally {
      clearTimeout(watchdog);
    }
  }

  /** Whoever waits for this queue wakes. */
  async call(queueName: string): Promise<void> {
    const { model, redis } = this.#options;
    await redis.zadd(queueKey(model, queueName, 'marker'), 0, '0');
  }
}
