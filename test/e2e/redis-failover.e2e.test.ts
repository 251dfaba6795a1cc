/**
 * RedisFailover: the master becomes a replica of the one that was its replica, and the address that everybody uses leads to the new master from then
 * on; old connections stay with the old one, which only reads. Streams go on, and new requests are served.
 */
import type { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { inStep, onRedis, type RedisServer, startRedis } from '../redis-server.ts';
import { MovingAddress } from './moving-address.ts';
import { Product, user } from './product.ts';

let masters: [RedisServer, RedisServer];
let address: MovingAddress;
let product: Product;

beforeAll(async () => {
  masters = [await startRedis(), await startRedis()];
  address = await MovingAddress.open(masters[0].port);
  await onRedis(masters[1], redis => redis.replicaof('127.0.0.1', masters[0].port));
  product = await Product.start({ redisUrl: `redis://127.0.0.1:${address.port}` });
});
afterAll(async () => {
  await product?.stop();
  address?.close();
  for (const redis of masters ?? []) await redis.stop();
});

/** As a failover does that loses nothing: the old master takes no more writes, the replica has them all, then they change places. */
async function failOver(from: RedisServer, to: RedisServer): Promise<void> {
  await onRedis(from, async redis => {
    await redis.call('CLIENT', 'PAUSE', '5000', 'WRITE');
    await onRedis(to, async replica => {
      const offset = async (client: Redis) => /(?:slave|master)_repl_offset:(\d+)/.exec(await client.info('replication'))?.[1];
      while ((await offset(replica)) !== (await offset(redis))) await new Promise(resolve => setTimeout(resolve, 10));
      await replica.replicaof('NO', 'ONE');
    });
    address.moveTo(to.port);
    await redis.replicaof('127.0.0.1', to.port);
    await redis.call('CLIENT', 'UNPAUSE');
  });
}

it('streams go on over a failover, to the same bytes, and new requests are served', async () => {
  const body = {
    model: 'default',
    messages: [user('Tell of a ferry and its captain.')],
    seed: 5,
    temperature: 0.7,
    max_tokens: 60,
    ignore_eos: true,
  };
  const undisturbed = await product.stream({ body });
  expect(undisturbed.faults).toEqual([]);
  for (const [from, next] of [masters, masters.toReversed()] as [RedisServer, RedisServer][]) {
    let failing: Promise<void> | undefined;
    const outcome = await product.stream({
      body,
      onChunk: count => {
        if (count >= 5) failing ??= failOver(from, next);
      },
    });
    await failing;
    expect(outcome.faults).toEqual([]);
    expect(outcome.text).toBe(undisturbed.text);
    expect(await product.stream({ body })).toMatchObject({ faults: [], text: undisturbed.text });
    // Back in step before the next change of places.
    await inStep(from);
  }
});
