/** PrefixOutbox: where a batcher's changes of prefixes leave it: its snapshot in Redis, and then the stream that the edge follows. */
import type { ChainableCommander } from 'ioredis';
import { OUT_LIFETIME_MS, PREFIX_CHANGES, PREFIX_LIFETIME_MS, PREFIX_STREAM_LENGTH, prefixesKey } from '../shared/keys.ts';
import { encodeHead, encodeUpdate, type PrefixUpdate } from '../shared/prefix-directory.ts';
import type { RedisClient } from './redis.ts';

/** behind: Redis has another state than the one before, or none any more. */
export type SnapshotStanding = 'ok' | 'behind';

export class PrefixOutbox {
  readonly #redis: RedisClient;

  constructor(redis: RedisClient) {
    this.#redis = redis;
  }

  /** Updates of one batcher, each following the one before; update 0 begins anew. */
  async send(updates: readonly PrefixUpdate[]): Promise<SnapshotStanding> {
    if (updates.length === 0) return 'ok';
    const snapshots = this.#redis.pipeline();
    for (const { batcherId, epoch, seq, added, evicted } of updates) {
      const before = seq === 0 ? '' : encodeHead({ epoch, seq: seq - 1 });
      snapshots.publishPrefixes(
        prefixesKey(batcherId),
        ...[encodeHead({ epoch, seq }), before, PREFIX_LIFETIME_MS],
        ...[added.length, ...added.flat(), ...evicted],
      );
    }
    const changes = this.#redis.pipeline();
    for (const update of updates) changes.xadd(PREFIX_CHANGES, 'MAXLEN', '~', PREFIX_STREAM_LENGTH, '*', 'e', encodeUpdate(update));
    changes.pexpire(PREFIX_CHANGES, OUT_LIFETIME_MS);
    // Snapshot before stream, which may be on different nodes: who has read an entry finds a snapshot that is no older.
    const standings = await answers(snapshots);
    await answers(changes);
    return standings.includes('behind') ? 'behind' : 'ok';
  }

  /** Makes the snapshot last, if it is in this state. */
  async keep(state: { batcherId: string; epoch: number; seq: number }): Promise<SnapshotStanding> {
    const head = encodeHead(state);
    return (await this.#redis.publishPrefixes(prefixesKey(state.batcherId), head, head, PREFIX_LIFETIME_MS, 0)) as SnapshotStanding;
  }

  async withdraw(batcherId: string): Promise<void> {
    await this.#redis.del(prefixesKey(batcherId));
  }
}

/** Throws the first failure. */
async function answers(pipeline: ChainableCommander): Promise<unknown[]> {
  return ((await pipeline.exec()) ?? []).map(([error, answer]) => {
    if (error) throw error;
    return answer;
  });
}
