/**
 * RedisLossyFailover: from one moment to the next the address that everybody uses leads to a replica that was not told the last of what the master
 * knew. What waited is answered all the same, and what was being answered goes on behind what its client has.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { follow, onRedis, type RedisServer, startRedis } from '../redis-server.ts';
import { MovingAddress } from './moving-address.ts';
import { Product, user } from './product.ts';

let servers: [RedisServer, RedisServer];
let address: MovingAddress;
let product: Product;

beforeAll(async () => {
  servers = [await startRedis(), await startRedis()];
  address = await MovingAddress.open(servers[0].port);
  product = await Product.start({ redisUrl: `redis://127.0.0.1:${address.port}`, batcherArguments: ['--max-running', '1'] });
});
afterAll(async () => {
  await product?.stop();
  address?.close();
  for (const redis of servers ?? []) await redis.stop();
});

/** From here on the replica hears nothing more. */
const detach = (replica: RedisServer) => onRedis(replica, redis => redis.replicaof('NO', 'ONE'));

/** Jobs that wait or run. */
async function jobKeys(server: RedisServer): Promise<string[]> {
  const keys = await onRedis(server, redis => redis.keys('sluice:{*}:*:chatcmpl-*'));
  return keys.filter(key => !key.endsWith(':lock'));
}

function move(to: RedisServer): void {
  address.moveTo(to.port);
  address.cut();
}

const body = (text: string, maxTokens: number, seed?: number) => ({
  ...{ model: 'default', messages: [user(text)], seed, temperature: 0.7, max_tokens: maxTokens, ignore_eos: true },
});

it('a job that only the lost master knew is answered, and one whose record has lost its end goes on, both to the undisturbed bytes', async () => {
  const [master, replica] = servers;
  // Longer than it takes to notice that a lock is lost, on a fast machine too.
  const running = body('Tell of a ferry and its captain.', 500, 5);
  const waiting = body('Tell of a mill and its miller.', 20, 5);
  const undisturbed = [await product.stream({ body: running }), await product.stream({ body: waiting })];
  await follow(replica, master);
  const detached = Promise.withResolvers<void>();
  const outcomes = [
    product.stream({
      body: running,
      onChunk: count => {
        if (count === 5) void detach(replica).then(() => detached.resolve(), detached.reject);
      },
    }),
    // It waits for the one row there is.
    detached.promise.then(() => product.stream({ body: waiting })),
  ];
  await expect.poll(async () => (await jobKeys(master)).length, { timeout: 10_000 }).toBe(2);
  expect(await jobKeys(replica)).toHaveLength(1);
  move(replica);
  const told = await Promise.all(outcomes);
  expect(told.map(outcome => outcome.faults)).toEqual([[], []]);
  expect(told.map(outcome => outcome.text)).toEqual(undisturbed.map(outcome => outcome.text));
  expect(await product.log()).toContain('"event":"job_lost"');
  await expect.poll(() => jobKeys(replica)).toEqual([]);
});

it('an answer that nobody could make again, of which the new master knows nothing, goes on behind what its client has', async () => {
  const [replica, master] = servers;
  await follow(replica, master);
  await detach(replica);
  const outcome = await product.stream({
    body: body('Tell of a bridge and its toll keeper.', 100),
    onChunk: count => {
      if (count === 5) move(replica);
    },
  });
  expect(outcome.faults).toEqual([]);
  expect(outcome.usage).toMatchObject({ completionTokens: 100 });
  await expect.poll(() => jobKeys(replica)).toEqual([]);
});
