/**
 * RedisCluster: gateway and batcher on a cluster of six nodes: slots that move, masters that die or are exchanged, and a slot that nobody has for a
 * while. What runs and what waits goes on, to the bytes of an undisturbed run.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { StreamOutcome } from '../../bench/load-client.ts';
import { checkRedis } from '../../scripts/supervisor/redis-elsewhere.ts';
import { parseCard } from '../../shared/batcher-card.ts';
import { BATCHER_CARDS, queueKey, SHARED_QUEUE } from '../../shared/keys.ts';
import { RedisCluster } from '../redis-cluster.ts';
import { Product, user } from './product.ts';

let cluster: RedisCluster;
let product: Product;
/** Those that wait on the queue, and those that the batcher has taken off it. */
let queue: string;
let active: string;
/** Their texts, when nothing happens. */
let undisturbed: string[];

const body = (text: string, maxTokens: number) => ({
  ...{ model: 'default', messages: [user(text)], seed: 5, temperature: 0.7, max_tokens: maxTokens, ignore_eos: true },
});
/** The first two run at the same time, until all others have come; the third is taken by the batcher and waits there, the others wait on the queue. */
const BODIES = [
  body('Tell of a ferry and its captain.', 200),
  body('Tell of a lighthouse and its keeper.', 300),
  body('Tell of a mill and its miller.', 8),
  body('Tell of a bridge and its toll keeper.', 8),
  body('Tell of a forge and its smith.', 8),
  body('Tell of a harbour and its pilot.', 8),
];
const RUNNING = 2;
const TAKEN = 3;

beforeAll(async () => {
  cluster = await RedisCluster.start();
  product = await Product.start({ redisUrl: cluster.url, batcherArguments: ['--max-running', String(RUNNING), '--prefetch', '0'] });
  const [card] = Object.values(await product.redis.hgetall(BATCHER_CARDS)).flatMap(json => parseCard(json) ?? []);
  queue = queueKey(card!.model, SHARED_QUEUE, 'prioritized');
  active = queueKey(card!.model, SHARED_QUEUE, 'active');
});
afterAll(async () => {
  await product?.stop();
  await cluster?.stop();
});

const queuedCount = async () => (await product.redis.zcard(queue)) + (await product.redis.llen(active));

/** All of BODIES at once, each in its place; `disturb` happens while the first two run and the others wait. Resolves with the order in which these began. */
async function streamAll(disturb?: () => Promise<unknown>): Promise<{ outcomes: StreamOutcome[]; begun: number[] }> {
  const begun: number[] = [];
  const runs: Promise<StreamOutcome>[] = [];
  const areRunning = Promise.withResolvers<void>();
  for (const [index, each] of BODIES.entries()) {
    const onChunk = (count: number) => {
      if (count === 1) begun.push(index);
      if (begun.length === RUNNING && count >= 5) areRunning.resolve();
    };
    runs.push(product.stream({ body: each, onChunk }));
    if (index === RUNNING - 1) await areRunning.promise;
    if (index >= RUNNING) await expect.poll(queuedCount, { timeout: 10_000 }).toBe(index + 1);
  }
  await disturb?.();
  return { outcomes: await Promise.all(runs), begun };
}

/** What each client has got, and in which order those on the queue were served. What was taken may come back, and be begun anew, where locks run out. */
async function expectUndisturbed(disturb: () => Promise<unknown>): Promise<void> {
  const { outcomes, begun } = await streamAll(disturb);
  expect(outcomes.map(outcome => outcome.faults)).toEqual(BODIES.map(() => []));
  expect(outcomes.map(outcome => outcome.text)).toEqual(undisturbed);
  expect(begun.filter(index => index >= TAKEN)).toEqual([3, 4, 5]);
}

describe('a cluster of Redis', { timeout: 60_000 }, () => {
  it('answers as one server does, in a stream and whole', async () => {
    const { outcomes } = await streamAll();
    expect(outcomes.map(outcome => outcome.faults)).toEqual(BODIES.map(() => []));
    undisturbed = outcomes.map(outcome => outcome.text);
    const whole = await product.chat(BODIES[0]!);
    expect(whole.choices[0]?.message.content).toBe(undisturbed[0]);
  });

  it('forgets responses, what is known of each being on more than one node', async () => {
    const forgotten = ['a', 'b', 'c', 'd'].map(async key => {
      const asked = { model: 'default', input: `Say ${key}.`, max_output_tokens: 4 };
      const made = await product.post('/responses', asked, { headers: { 'idempotency-key': key } });
      const { id } = (await made.json()) as { id: string };
      const of = (method: string) =>
        fetch(`${product.baseUrl}/responses/${id}`, { method, headers: { authorization: `Bearer ${product.key}` } });
      return [made.status, (await of('GET')).status, (await of('DELETE')).status, (await of('GET')).status];
    });
    expect(await Promise.all(forgotten)).toEqual(forgotten.map(() => [200, 200, 200, 404]));
  });

  it('is not taken for one server', async () => {
    const { port } = await cluster.masterOf(queue);
    await expect(checkRedis(`redis://127.0.0.1:${port}`)).rejects.toThrow(
      /is a node of a cluster\. Begin its address with redis\+cluster:/,
    );
    expect(await checkRedis(cluster.url)).toBe(cluster.url);
  });

  it('what runs and what waits goes on while its slots move to other masters', async () => {
    await expectUndisturbed(async () => {
      const before = await cluster.masterOf(queue);
      // Until it is settled who has the slot no script with keys old and new is run.
      await cluster.moveSlotOf(queue, () => new Promise(resolve => setTimeout(resolve, 1_000)));
      for (const key of [BATCHER_CARDS, ...(await cluster.keys('sluice:out:*')), ...(await cluster.keys('sluice:gen:*'))]) {
        await cluster.moveSlotOf(key);
      }
      expect(await cluster.masterOf(queue)).not.toBe(before);
    });
  });

  it('what runs and what waits goes on when a master is killed and its replica takes its place', async () => {
    await cluster.whole();
    await expectUndisturbed(async () => {
      const killed = await cluster.killMasterOf(queue);
      await killed.start();
    });
  });

  it('what runs and what waits goes on when master and replica change places', async () => {
    await cluster.whole();
    await expectUndisturbed(() => cluster.exchangeMasterOf(queue));
  });

  it('new requests are refused with 503 and a time to come again while nobody has the slot of the queue, and served when its node is back', async () => {
    let refused: Response | undefined;
    await cluster.whole();
    await expectUndisturbed(async () => {
      const gone = await cluster.takeAway(queue);
      refused = await product.post('/chat/completions', BODIES[2]);
      await expect(checkRedis(cluster.url)).rejects.toThrow(/does not answer \(the cluster is down\)/);
      await gone.start();
    });
    expect(refused?.status).toBe(503);
    expect(await refused?.json()).toMatchObject({ error: { code: 'dependency_unavailable' } });
    expect(Number(refused?.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(await product.stream({ body: BODIES[2]! })).toMatchObject({ faults: [], text: undisturbed[2] });
  });
});
