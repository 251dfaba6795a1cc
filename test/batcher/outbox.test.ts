/** The outbox and its Lua commands against a real Redis. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Outbox } from '../../batcher/outbox.ts';
import { connectRedis, type RedisClient } from '../../batcher/redis.ts';
import { cancelKey, fenceKey, GENERATION_LIFETIME_MS, generationKey, outKey } from '../../shared/keys.ts';
import { decodeEvents, type TokenEvent } from '../../shared/token-event.ts';
import { type RedisServer, startRedis } from '../redis-server.ts';

let server: RedisServer;
let redis: RedisClient;
let outbox: Outbox;

beforeAll(async () => {
  server = await startRedis();
  redis = connectRedis(server.url);
  redis.on('error', () => undefined);
  outbox = new Outbox(redis);
});
afterAll(async () => {
  redis.disconnect();
  await server.stop();
});
beforeEach(() => redis.flushall());

const recipient = (attempt = 1) => ({ jobId: 'j', attempt, shard: '0' });
const delta = (seq: number, attempt = 1): TokenEvent => ({
  id: 'j',
  attempt,
  seq,
  type: 'delta',
  choice: 0,
  tokenIds: [seq],
  text: `t${seq}`,
});
const recorded = async () => (await redis.xrange(generationKey('j'), '-', '+')).map(([, fields]) => decodeEvents(`[${fields[1]}]`)[0]!);

describe('Outbox', () => {
  it('records a job’s events, tells its shard, and gives both a lifetime', async () => {
    expect(await outbox.send([{ recipient: recipient(), events: [delta(0), delta(1)] }])).toEqual(['ok']);
    expect(await recorded()).toEqual([delta(0), delta(1)]);
    const [entry] = await redis.xrange(outKey('0'), '-', '+');
    expect(decodeEvents(entry![1][1]!)).toEqual([delta(0), delta(1)]);
    for (const key of await redis.keys('*')) expect(await redis.pttl(key), key).toBeGreaterThan(0);
  });

  it('tells a shard once a step, whatever number of jobs', async () => {
    const other: TokenEvent = { ...delta(0), id: 'k' };
    await outbox.send([
      { recipient: recipient(), events: [delta(0)] },
      { recipient: { jobId: 'k', attempt: 1, shard: '0' }, events: [other] },
    ]);
    expect(await redis.xlen(outKey('0'))).toBe(1);
  });

  it('tells a shard nothing of an attempt that was fenced off, and of the others in the same step what they have to tell', async () => {
    await outbox.claim(recipient(2));
    const other: TokenEvent = { ...delta(0), id: 'k' };
    const standings = await outbox.send([
      { recipient: recipient(1), events: [delta(0)] },
      { recipient: { jobId: 'k', attempt: 1, shard: '0' }, events: [other] },
    ]);
    expect(standings).toEqual(['fenced', 'ok']);
    const entries = await redis.xrange(outKey('0'), '-', '+');
    expect(entries.flatMap(([, fields]) => decodeEvents(fields[1]!))).toEqual([other]);
  });

  it('drops what is sent twice', async () => {
    await outbox.send([{ recipient: recipient(), events: [delta(0), delta(1)] }]);
    await outbox.send([{ recipient: recipient(), events: [delta(0), delta(1), delta(2)] }]);
    expect(await recorded()).toEqual([delta(0), delta(1), delta(2)]);
  });

  it('records nothing behind a gap, which Redis left by losing the end of the record, and tells nobody of it', async () => {
    await outbox.send([{ recipient: recipient(), events: [delta(0)] }]);
    await redis.del(outKey('0'));
    expect(await outbox.send([{ recipient: recipient(), events: [delta(2)] }])).toEqual(['behind']);
    expect(await recorded()).toEqual([delta(0)]);
    expect(await redis.exists(outKey('0'))).toBe(0);
    expect(await outbox.claim(recipient(2))).toEqual({ standing: 'ok', events: [delta(0)] });
    expect(await outbox.send([{ recipient: recipient(2), events: [delta(1, 2)] }])).toEqual(['ok']);
  });

  it('refuses an attempt that a later one has fenced off', async () => {
    await outbox.send([{ recipient: recipient(1), events: [delta(0)] }]);
    expect(await outbox.claim(recipient(2))).toEqual({ standing: 'ok', events: [delta(0)] });
    expect(await outbox.send([{ recipient: recipient(1), events: [delta(1)] }])).toEqual(['fenced']);
    expect(await outbox.send([{ recipient: recipient(2), events: [delta(1, 2)] }])).toEqual(['ok']);
    expect(await outbox.claim(recipient(1))).toMatchObject({ standing: 'fenced' });
    expect(await recorded()).toEqual([delta(0), delta(1, 2)]);
  });

  it('says that a job was cancelled, with and without events', async () => {
    await redis.set(cancelKey('j'), '1');
    expect(await outbox.send([{ recipient: recipient(), events: [delta(0)] }])).toEqual(['cancelled']);
    expect(await outbox.send([{ recipient: recipient(), events: [] }])).toEqual(['cancelled']);
    expect(await recorded()).toHaveLength(1);
    expect(await outbox.claim(recipient(2))).toMatchObject({ standing: 'cancelled' });
  });

  it('gives a lifetime anew only now and then, at once where there is none, and another at the end', async () => {
    const one = recipient();
    const told = async (event: TokenEvent) => {
      await outbox.send([{ recipient: one, events: [event] }]);
      return { record: await redis.pttl(generationKey('j')), fence: await redis.pttl(fenceKey('j')) };
    };
    await told(delta(0));
    for (const key of [generationKey('j'), fenceKey('j')]) await redis.pexpire(key, 5_000);
    const kept = await told(delta(1));
    expect(kept.record).toBeLessThanOrEqual(5_000);
    expect(kept.fence).toBeLessThanOrEqual(5_000);
    await redis.del(fenceKey('j'));
    const renewed = await told(delta(2));
    expect(renewed.record).toBeGreaterThan(GENERATION_LIFETIME_MS);
    expect(renewed.fence).toBeGreaterThan(GENERATION_LIFETIME_MS);
    const ended = await told({ id: 'j', attempt: 1, seq: 3, type: 'error', code: 'generation_failed', message: 'no' });
    expect(ended.record).toBeLessThanOrEqual(GENERATION_LIFETIME_MS);
    expect(ended.fence).toBeLessThanOrEqual(GENERATION_LIFETIME_MS);
  });

  it('leaves nothing behind for a question without events', async () => {
    expect(await outbox.send([{ recipient: recipient(), events: [] }])).toEqual(['ok']);
    expect(await redis.exists(generationKey('j'), fenceKey('j'), outKey('0'))).toBe(0);
  });

  it('keeps what it is to send over a restart of Redis, once each', async () => {
    await outbox.send([{ recipient: recipient(), events: [delta(0)] }]);
    await server.halt();
    const sending = outbox.send([{ recipient: recipient(), events: [delta(1)] }]);
    await server.resume();
    expect(await sending).toEqual(['ok']);
    expect(await recorded()).toEqual([delta(0), delta(1)]);
  });

  it('sends the others when one record is of another type, and tells that one’s listeners that it is over', async () => {
    await redis.set(generationKey('k'), 'no stream');
    const other: TokenEvent = { ...delta(4), id: 'k' };
    const standings = await outbox.send([
      { recipient: { jobId: 'k', attempt: 1, shard: '0' }, events: [other] },
      { recipient: recipient(), events: [delta(0)] },
    ]);
    expect(standings).toEqual(['broken', 'ok']);
    expect(await recorded()).toEqual([delta(0)]);
    const entries = await redis.xrange(outKey('0'), '-', '+');
    expect(entries.flatMap(([, fields]) => decodeEvents(fields[1]!))).toEqual([
      delta(0),
      expect.objectContaining({ id: 'k', seq: 4, type: 'error', code: 'generation_failed' }),
    ]);
  });
});
