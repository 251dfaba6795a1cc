/** The heartbeat against a real Redis, beside cards of others and what is no card at all. */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { Heartbeat } from '../../batcher/heartbeat.ts';
import { connectRedis, type RedisClient } from '../../batcher/redis.ts';
import type { BatcherCard } from '../../shared/batcher-card.ts';
import { BATCHER_CARDS, drainKey } from '../../shared/keys.ts';
import { type RedisServer, startRedis } from '../redis-server.ts';

let server: RedisServer;
let redis: RedisClient;
beforeAll(async () => {
  server = await startRedis();
  redis = connectRedis(server.url);
});
afterAll(async () => {
  redis.disconnect();
  await server.stop();
});
beforeEach(() => redis.flushall());

const card = (batcherId: string, writtenAt = Date.now()): BatcherCard => ({
  ...{ version: 1, batcherId, model: 'm', contextTokens: 100, writtenAt, startedAt: 7, state: 'serving' },
  ...{ runningCount: 0, waitingCount: 0, maxRunningCount: 1, kvCapacityTokens: 1, kvUsedTokens: 0 },
  ...{ prefillTokensPerSecond: 0, decodeTokensPerSecond: 0 },
});

test.each([['null'], ['{"writtenAt":'], ['[]'], ['"x"'], ['{"writtenAt":1e300}'], ['{"writtenAt":{}}'], ['']])(
  'a card that holds %j goes, and the batcher starts, hears that it is to drain, and ends beside it',
  async json => {
    let askedCount = 0;
    const heartbeat = new Heartbeat(
      redis,
      async () => card('own'),
      () => askedCount++,
    );
    await redis.hset(BATCHER_CARDS, 'strange', json, 'other', JSON.stringify(card('other')));
    await redis.set(drainKey('own'), '7');
    await heartbeat.start();
    expect(askedCount).toBe(1);
    expect(await redis.hkeys(BATCHER_CARDS)).toEqual(expect.arrayContaining(['own', 'other']));
    expect(await redis.hexists(BATCHER_CARDS, 'strange')).toBe(0);
    await redis.hset(BATCHER_CARDS, 'strange', json);
    await heartbeat.beat();
    await heartbeat.stop();
    expect(await redis.hkeys(BATCHER_CARDS)).toEqual(['other']);
  },
);
