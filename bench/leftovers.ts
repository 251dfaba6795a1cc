/**
 * Leftovers: what requests have left in Redis and in a batcher, read from outside: the queue's counts, the cards that batchers write, keys
 * that never expire, and resident memory as the system counts it.
 */
import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { connectionOptions } from '../batcher/redis.ts';
import { parseCard } from '../shared/batcher-card.ts';
import { BATCHER_CARDS, queuePrefix, SHARED_QUEUE } from '../shared/keys.ts';

export interface Leftovers {
  /** Sequences that batchers compute. */
  runningCount: number;
  /** Sequences that batchers hold without computing them. */
  waitingCount: number;
  /** Jobs of the queue in any state. */
  jobCount: number;
}

const SETTLED_PATIENCE_MS = 30_000;
const POLL_MS = 250;
const SCAN_COUNT = 500;
/** As many as there are queues, and queues as there are batchers: what BullMQ keeps of each. */
const QUEUE_KEY = /^sluice:\{[^}]*\}:[\w%-]+:(meta|id|events|stalled-check|stalled|marker|pc)$/;

export class LeftoverProbe {
  readonly #redis: Redis;
  readonly #queue: Queue;

  constructor(redisUrl: string, model: string) {
    this.#redis = new Redis(redisUrl, { maxRetriesPerRequest: null });
    // A probe outlives a Redis that a bench breaks: it reads when there is one again.
    this.#redis.on('error', () => undefined);
    this.#queue = new Queue(SHARED_QUEUE, { connection: connectionOptions(redisUrl), prefix: queuePrefix(model) });
    this.#queue.on('error', () => undefined);
  }

  /** Undefined while some batcher has written no card since that moment (epoch milliseconds). */
  async read(since: number): Promise<Leftovers | undefined> {
    const cards = Object.values(await this.#redis.hgetall(BATCHER_CARDS)).flatMap(json => parseCard(json) ?? []);
    if (cards.length === 0) throw new Error('no batcher has a card in Redis');
    if (cards.some(card => card.writtenAt < since)) return undefined;
    const counts = await this.#queue.getJobCounts();
    return {
      runningCount: sum(cards.map(card => card.runningCount)),
      waitingCount: sum(cards.map(card => card.waitingCount)),
      jobCount: sum(Object.values(counts)),
    };
  }

  /** What is left once nothing changes for the better any more: all zero, or the patience is over. */
  async settled(): Promise<Leftovers> {
    const since = Date.now();
    for (;;) {
      const left = await this.read(since);
      const isLate = Date.now() - since > SETTLED_PATIENCE_MS;
      if (left && (sum(Object.values(left)) === 0 || isLate)) return left;
      if (isLate) throw new Error(`a batcher has written no card for ${SETTLED_PATIENCE_MS / 1000} s`);
      await sleep(POLL_MS);
    }
  }

  /** Names of all keys without an expiry, but for what there is of each queue, however many requests there were. */
  async lastingKeys(): Promise<Set<string>> {
    const lasting = new Set<string>();
    let cursor = '0';
    do {
      const [next, keys] = await this.#redis.scan(cursor, 'COUNT', SCAN_COUNT);
      const lifetimes = await Promise.all(keys.map(key => this.#redis.pttl(key)));
      keys.forEach((key, i) => {
        if (lifetimes[i] === -1 && !QUEUE_KEY.test(key)) lasting.add(key);
      });
      cursor = next;
    } while (cursor !== '0');
    return lasting;
  }

  async close(): Promise<void> {
    await this.#queue.close();
    this.#redis.disconnect();
  }
}

/** Bytes of a process that are in memory; `peak`: that were at most. */
export async function residentBytes(pid: number, at: 'now' | 'peak' = 'now'): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => {
    throw new Error(`cannot read the memory of process ${pid}; this needs Linux and a process that lives`);
  });
  return Number(status.match(at === 'now' ? /^VmRSS:\s+(\d+) kB$/m : /^VmHWM:\s+(\d+) kB$/m)?.[1]) * 1024;
}

/** Whole MiB, for a table. */
export function mib(bytes: number): string {
  return (bytes / 2 ** 20).toFixed(0);
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
