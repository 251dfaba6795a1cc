/** The directory of prefixes, read from a real Redis into which batchers write. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { PrefixOutbox } from '../../batcher/prefix-outbox.ts';
import { connectRedis } from '../../batcher/redis.ts';
import { PrefixFeed } from '../../gateway/prefix-feed.ts';
import type { BatcherCard } from '../../shared/batcher-card.ts';
import { PREFIX_CHANGES } from '../../shared/keys.ts';
import { encodeUpdate, PrefixDirectory } from '../../shared/prefix-directory.ts';
import { type RedisServer, startRedis } from '../redis-server.ts';

let server: RedisServer;
let redis: ReturnType<typeof connectRedis>;
let outbox: PrefixOutbox;
let directory: PrefixDirectory;
let feed: PrefixFeed;
let troubles: string[];
/** Each refresh is at a later time, so that it reads. */
let now: number;

beforeAll(async () => {
  server = await startRedis({ isDurable: false });
});
afterAll(() => server.stop());
beforeEach(() => {
  redis = connectRedis(server.url);
  outbox = new PrefixOutbox(redis);
  troubles = [];
  now = Date.now() + 1_000_000;
  open();
});
afterEach(async () => {
  await redis.flushall();
  redis.disconnect();
});

function open(): void {
  directory = new PrefixDirectory();
  feed = new PrefixFeed({ link: { run: command => command(redis) }, directory, onTrouble: message => troubles.push(message) });
}

const HASHES = ['a', 'b', 'c', 'd'].map(letter => letter.repeat(11));
const tell = (batcherId: string, seq: number, added: string[], evicted: string[] = []) =>
  outbox.send([{ batcherId, epoch: 1, seq, added: added.map((hash, i) => [hash, 10 * (i + 1)] as const), evicted }]);

async function refresh(...ids: string[]): Promise<void> {
  now += 1_000;
  await feed.refresh(
    ids.map(batcherId => ({ batcherId, writtenAt: now }) as BatcherCard),
    now,
  );
}

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise(resolve => setTimeout(resolve, 5));
}

/** Refreshes until the batcher is known to hold so many of the hashes. */
async function untilHeld(batcherId: string, count: number): Promise<void> {
  await until(async () => {
    await refresh(batcherId);
    return directory.entryCount === count;
  });
  directory.check();
}

describe('PrefixFeed', () => {
  it('knows what was held before it looked, and what has come and gone since', async () => {
    await tell('x', 0, HASHES.slice(0, 2));
    await untilHeld('x', 2);
    await tell('x', 1, [HASHES[2]!], [HASHES[1]!]);
    await tell('x', 2, [HASHES[3]!]);
    await untilHeld('x', 3);
    expect(directory.match(HASHES)).toEqual([{ batcherId: 'x', blockCount: 1, tokens: 10 }]);
    expect(troubles).toEqual([]);
  });

  it('reads by itself once it is followed, and waits for what was held before its first look', async () => {
    await tell('x', 0, [HASHES[0]!]);
    const cards = () => [{ batcherId: 'x', writtenAt: Date.now() } as BatcherCard];
    await feed.refresh(cards(), Date.now());
    expect(directory.entryCount).toBe(1);
    feed.follow(async () => cards());
    await tell('x', 1, [HASHES[1]!]);
    await until(() => directory.entryCount === 2);
  });

  it('catches up with more than one answer holds', async () => {
    await tell('x', 0, [HASHES[0]!]);
    await untilHeld('x', 1);
    for (let seq = 1; seq <= 250; seq++) await tell('x', seq, [String(seq).padStart(11, '0')]);
    await untilHeld('x', 251);
  });

  it('reads a snapshot when changes were trimmed before it read them', async () => {
    await tell('x', 0, [HASHES[0]!]);
    await untilHeld('x', 1);
    await tell('x', 1, [HASHES[1]!]);
    await redis.xtrim(PREFIX_CHANGES, 'MAXLEN', 0);
    await tell('x', 2, [HASHES[2]!]);
    await untilHeld('x', 3);
  });

  it('goes on when Redis has lost everything and its stream begins anew', async () => {
    await tell('x', 0, HASHES);
    await untilHeld('x', 4);
    await redis.flushall();
    await outbox.send([{ batcherId: 'x', epoch: 2, seq: 0, added: [[HASHES[0]!, 10]], evicted: [] }]);
    await untilHeld('x', 1);
  });

  it('goes on when the new stream begins with the very id that was read last', async () => {
    await tell('x', 0, HASHES);
    await untilHeld('x', 4);
    const [[id] = ['']] = await redis.xrevrange(PREFIX_CHANGES, '+', '-', 'COUNT', 1);
    await redis.flushall();
    const update = { batcherId: 'x', epoch: 2, seq: 0, added: [[HASHES[0]!, 10]] as const, evicted: [] };
    await redis.xadd(PREFIX_CHANGES, id, 'e', encodeUpdate(update));
    await untilHeld('x', 1);
  });

  it('forgets a batcher whose card is stale or gone', async () => {
    await tell('x', 0, HASHES);
    await untilHeld('x', 4);
    await feed.refresh([{ batcherId: 'x', writtenAt: now - 60_000 } as BatcherCard], now);
    expect(directory.entryCount).toBe(0);
  });

  it('takes garbage in the stream for nothing', async () => {
    await tell('x', 0, HASHES);
    await untilHeld('x', 4);
    await redis.xadd(PREFIX_CHANGES, '*', 'e', '{"nonsense"');
    await redis.xadd(PREFIX_CHANGES, '*', 'f', '');
    await tell('x', 1, ['e'.repeat(11)]);
    await untilHeld('x', 5);
  });

  it('never throws: without Redis the directory stays as it is', async () => {
    const broken = new PrefixFeed({
      link: { run: () => Promise.reject(new Error('away')) },
      directory,
      onTrouble: message => troubles.push(message),
    });
    await broken.refresh([{ batcherId: 'x', writtenAt: now } as BatcherCard], now);
    expect(troubles).toContain('away');
  });
});
