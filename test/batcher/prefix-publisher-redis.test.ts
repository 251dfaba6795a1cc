/** The publisher, its outbox and Lua command against a real Redis, with a directory that follows as the edge does. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { HeldPrefixes } from '../../batcher/held-prefixes.ts';
import { MIXED } from '../../batcher/kv/block-origin.ts';
import { KvCache } from '../../batcher/kv/kv-cache.ts';
import { PrefixOutbox } from '../../batcher/prefix-outbox.ts';
import { PrefixPublisher } from '../../batcher/prefix-publisher.ts';
import { connectRedis, type RedisClient } from '../../batcher/redis.ts';
import { PREFIX_CHANGES, PREFIX_CHANGES_PER_ENTRY, PREFIX_LIFETIME_MS, PREFIX_STREAM_LENGTH, prefixesKey } from '../../shared/keys.ts';
import { prefixHashes } from '../../shared/prefix.ts';
import { decodeSnapshot, decodeUpdate, PrefixDirectory } from '../../shared/prefix-directory.ts';
import { type RedisServer, startRedis } from '../redis-server.ts';

let server: RedisServer;
let redis: RedisClient;
beforeAll(async () => {
  server = await startRedis();
  redis = connectRedis(server.url);
  redis.on('error', () => undefined);
});
afterAll(async () => {
  redis.disconnect();
  await server.stop();
});
beforeEach(() => redis.flushall());

const tokens = (count: number, first = 0) => Array.from({ length: count }, (_, i) => first + i);

/** A batcher's store with its publisher; flushed by hand. */
class Source {
  readonly errors: Error[] = [];
  readonly held = new HeldPrefixes({
    blockTokens: 16,
    maxEntries: 10_000,
    maxClosed: 4,
    tokenBytes: () => new Uint8Array(0),
    pathTokenIds: blockId => this.kv.pathTokenIds(blockId),
    onChanged: () => undefined,
  });
  readonly kv: KvCache;
  readonly publisher: PrefixPublisher;
  #count = 0;

  constructor(batcherId: string, blocks = 100_000) {
    this.kv = new KvCache({ blockTokens: 16, budgetBlocks: blocks, storeBlocks: blocks, rowCount: 1 }, this.held);
    this.publisher = new PrefixPublisher({
      batcherId,
      held: this.held,
      outbox: new PrefixOutbox(redis),
      clock: () => Date.now(),
      onError: error => this.errors.push(error),
    });
    sources.push(this);
  }

  store(tokenIds: number[]): void {
    const owner = `r${this.#count++}`;
    this.held.open(owner, { tenant: 't', prompt: { kind: 'tokens', tokenIds }, promptTokenIds: tokenIds });
    this.held.close(owner);
    const space = this.kv.space('t', tokenIds);
    this.kv.save({ owner, space, tokenIds, row: 0, tokenCount: tokenIds.length, prefilledTokens: 0, tailOrigin: MIXED }, []);
  }
}

/** The edge: follows the stream, and reads a snapshot where it must. */
class Follower {
  readonly directory = new PrefixDirectory();
  snapshotCount = 0;
  #last = '0';

  async follow(): Promise<void> {
    const answer = await redis.xread('STREAMS', PREFIX_CHANGES, this.#last);
    for (const [id, fields] of answer?.[0]?.[1] ?? []) {
      this.#last = id;
      const update = decodeUpdate(fields[1]!)!;
      if (this.directory.apply(update) === 'gap') await this.read(update.batcherId);
    }
    this.directory.check();
  }

  async read(batcherId: string): Promise<void> {
    this.snapshotCount += 1;
    const snapshot = decodeSnapshot(batcherId, await redis.hgetall(prefixesKey(batcherId)));
    if (snapshot !== undefined) this.directory.load(snapshot);
  }

  blocksOf(batcherId: string, tokenIds: number[]): number {
    const hashes = prefixHashes({ kind: 'tokens', tokenIds }, 't');
    return this.directory.match(hashes).find(match => match.batcherId === batcherId)?.blockCount ?? 0;
  }
}

const sources: Source[] = [];
afterEach(async () => {
  for (const source of sources.splice(0)) await source.publisher.stop();
});

describe('a follower', () => {
  it('that listens from the start needs no snapshot', async () => {
    const source = new Source('a', 16);
    const follower = new Follower();
    source.store(tokens(256));
    await source.publisher.flush();
    await follower.follow();
    expect(follower.blocksOf('a', tokens(300))).toBe(4);
    source.kv.growRow(0, 5);
    await source.publisher.flush();
    await follower.follow();
    expect(follower.blocksOf('a', tokens(300))).toBe(2);
    expect(follower.snapshotCount).toBe(0);
    expect(source.errors).toEqual([]);
  });

  it('that comes late reads the snapshot and goes on from there', async () => {
    const source = new Source('a', 24);
    await source.publisher.flush();
    source.store(tokens(256));
    source.store(tokens(128, 1_000));
    await source.publisher.flush();
    source.kv.growRow(0, 8);
    await source.publisher.flush();
    const late = new Follower();
    await late.read('a');
    expect([late.blocksOf('a', tokens(256)), late.blocksOf('a', tokens(128, 1_000))]).toEqual([2, 2]);
    source.store(tokens(64, 2_000));
    await source.publisher.flush();
    await late.follow();
    expect(late.blocksOf('a', tokens(64, 2_000))).toBe(1);
    expect(late.snapshotCount).toBe(1);
  });

  it('that fell behind a trimmed stream reads the snapshot', async () => {
    const source = new Source('a');
    const follower = new Follower();
    await source.publisher.flush();
    await follower.follow();
    for (let i = 0; i < 5; i++) {
      source.store(tokens(64, i * 1_000));
      await source.publisher.flush();
    }
    await redis.xtrim(PREFIX_CHANGES, 'MAXLEN', 1);
    await follower.follow();
    expect(tokens(5).map(i => follower.blocksOf('a', tokens(64, i * 1_000)))).toEqual([1, 1, 1, 1, 1]);
    expect(follower.snapshotCount).toBe(1);
  });

  it('sees several batchers apart, and a later process of the same name as a new one', async () => {
    const follower = new Follower();
    const [a, b] = [new Source('a'), new Source('b')];
    a.store(tokens(64));
    b.store(tokens(128));
    await Promise.all([a.publisher.flush(), b.publisher.flush()]);
    await follower.follow();
    expect([follower.blocksOf('a', tokens(128)), follower.blocksOf('b', tokens(128))]).toEqual([1, 2]);
    // Died without a word.
    const again = new Source('a');
    again.store(tokens(64, 5_000));
    await new Promise(resolve => setTimeout(resolve, 2));
    await again.publisher.flush();
    await follower.follow();
    expect([follower.blocksOf('a', tokens(64)), follower.blocksOf('a', tokens(64, 5_000))]).toEqual([0, 1]);
    expect(await redis.hlen(prefixesKey('a'))).toBe(2);
  });
});

describe('in Redis', () => {
  it('a batcher takes one hash that ends by itself, and the stream is bounded', async () => {
    const source = new Source('a');
    source.store(tokens(64 * 1_500));
    await source.publisher.flush();
    expect(await redis.hlen(prefixesKey('a'))).toBe(1_501);
    expect(await redis.xlen(PREFIX_CHANGES)).toBe(2);
    for (const key of await redis.keys('*')) expect(await redis.pttl(key)).toBeGreaterThan(0);
    expect(await redis.pttl(prefixesKey('a'))).toBeLessThanOrEqual(PREFIX_LIFETIME_MS);
    const outbox = new PrefixOutbox(redis);
    for (let seq = 0; seq < 3 * PREFIX_STREAM_LENGTH; seq += 100) {
      await outbox.send(tokens(100, seq).map(each => ({ batcherId: 'b', epoch: 1, seq: each, added: [], evicted: [] })));
    }
    expect(await redis.xlen(PREFIX_CHANGES)).toBeLessThan(2 * PREFIX_STREAM_LENGTH);
    await source.publisher.stop();
    expect(await redis.exists(prefixesKey('a'))).toBe(0);
  });

  it('what is lost comes back in a new epoch, and followers notice', async () => {
    const source = new Source('a');
    const follower = new Follower();
    source.store(tokens(64));
    await source.publisher.flush();
    await redis.del(prefixesKey('a'));
    source.store(tokens(64, 1_000));
    await source.publisher.flush();
    // Redis had nothing to add it to.
    expect(await redis.exists(prefixesKey('a'))).toBe(0);
    await source.publisher.flush();
    await follower.follow();
    const fresh = new Follower();
    await fresh.read('a');
    for (const each of [follower, fresh]) expect([each.blocksOf('a', tokens(64)), each.blocksOf('a', tokens(64, 1_000))]).toEqual([1, 1]);
  });

  it('an update that is sent twice does its work once, and one out of turn none', async () => {
    const outbox = new PrefixOutbox(redis);
    const [hashA, hashB] = ['A'.repeat(11), 'B'.repeat(11)];
    const first = { batcherId: 'a', epoch: 1, seq: 0, added: [[hashA, 16]] as [string, number][], evicted: [] };
    const second = { batcherId: 'a', epoch: 1, seq: 1, added: [[hashB, 32]] as [string, number][], evicted: [hashA] };
    expect(await outbox.send([first, second])).toBe('ok');
    expect(await outbox.send([second])).toBe('ok');
    expect(await outbox.send([{ ...second, seq: 3 }])).toBe('behind');
    expect(await redis.hgetall(prefixesKey('a'))).toEqual({ head: '1.1.1', [hashB]: '32' });
    expect(await outbox.keep({ batcherId: 'a', epoch: 1, seq: 1 })).toBe('ok');
    expect(await outbox.keep({ batcherId: 'a', epoch: 1, seq: 0 })).toBe('behind');
    expect(await outbox.keep({ batcherId: 'b', epoch: 1, seq: 0 })).toBe('behind');
    expect(await redis.exists(prefixesKey('b'))).toBe(0);
  });

  it('a restart of it is waited for, and nothing is missing afterwards', async () => {
    const source = new Source('a');
    const follower = new Follower();
    source.store(tokens(64 * PREFIX_CHANGES_PER_ENTRY));
    await source.publisher.flush();
    await server.halt();
    source.store(tokens(64, 5_000_000));
    const sending = source.publisher.flush();
    await server.resume();
    await sending;
    while (source.held.hasChanges) await source.publisher.flush();
    await follower.follow();
    expect(follower.blocksOf('a', tokens(64, 5_000_000))).toBe(1);
    expect(follower.blocksOf('a', tokens(64 * PREFIX_CHANGES_PER_ENTRY))).toBe(PREFIX_CHANGES_PER_ENTRY);
  });
});
