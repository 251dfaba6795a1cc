/** RedisSentinel: gateway and batcher find the master by asking sentinels, and go on with the next one when it changes. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Child, startChild } from '../child.ts';
import { freePort } from '../free-port.ts';
import { follow, onRedis, type RedisServer, startRedis } from '../redis-server.ts';
import { Product, user } from './product.ts';

let folder: string;
let servers: [RedisServer, RedisServer];
let sentinel: Child;
let watch: Redis;
let product: Product;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sluice-sentinel-'));
  servers = [await startRedis(), await startRedis()];
  const [master, replica] = servers;
  await follow(replica, master);
  const port = await freePort();
  const file = join(folder, 'sentinel.conf');
  await writeFile(
    file,
    [
      `port ${port}`,
      'bind 127.0.0.1',
      `sentinel monitor main 127.0.0.1 ${master.port} 1`,
      'sentinel down-after-milliseconds main 1000',
    ].join('\n'),
  );
  sentinel = startChild('redis-server', [file, '--sentinel']);
  watch = new Redis(port, '127.0.0.1');
  watch.on('error', () => undefined);
  while (!String(await watch.call('INFO', 'sentinel')).includes('slaves=1')) await new Promise(resolve => setTimeout(resolve, 100));
  product = await Product.start({ redisUrl: `redis+sentinel://127.0.0.1:${port}/main` });
});
afterAll(async () => {
  await product?.stop();
  watch?.disconnect();
  await sentinel?.stop();
  for (const server of servers ?? []) await server.stop();
  await rm(folder, { recursive: true, force: true });
});

/** The old master takes no more writes meanwhile: what it took and did not pass on would be lost, which is no fault of ours. */
async function failOver(): Promise<void> {
  await onRedis(servers[0], async master => {
    await master.call('CLIENT', 'PAUSE', '10000', 'WRITE');
    await new Promise(resolve => setTimeout(resolve, 200));
    await watch.call('SENTINEL', 'FAILOVER', 'main');
  });
}

const masterPort = async () => Number(((await watch.call('SENTINEL', 'get-master-addr-by-name', 'main')) as string[])[1]);

it('a stream goes on over a failover that the sentinels make, and new requests are served', async () => {
  const body = { model: 'default', messages: [user('Tell of a lighthouse.')], seed: 5, temperature: 0.7, max_tokens: 60, ignore_eos: true };
  const undisturbed = await product.stream({ body });
  expect(undisturbed.faults).toEqual([]);
  expect(await masterPort()).toBe(servers[0].port);
  let failing: Promise<unknown> | undefined;
  const outcome = await product.stream({
    body,
    onChunk: count => {
      if (count >= 5) failing ??= failOver();
    },
  });
  await failing;
  expect(outcome.faults).toEqual([]);
  expect(outcome.text).toBe(undisturbed.text);
  while ((await masterPort()) !== servers[1].port) await new Promise(resolve => setTimeout(resolve, 50));
  expect(await product.stream({ body })).toMatchObject({ faults: [], text: undisturbed.text });
});
