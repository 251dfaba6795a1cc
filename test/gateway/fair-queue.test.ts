/** The fair queue against a real Redis: a discrete simulation of tenants that flood, of batchers that serve, and of time that runs out. */
import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Entrant, FairQueue, firstPriority, STEPS_PER_CLASS } from '../../gateway/fair-queue.ts';
import { fairKey, ownQueue, ownQueuesKey, queueKey, queuePrefix, SHARED_QUEUE } from '../../shared/keys.ts';
import { type RedisServer, startRedis } from '../redis-server.ts';

let server: RedisServer;
let redis: Redis;
let fair: FairQueue;
const MODEL = 'm';
const SCORES_PER_PRIORITY = 2 ** 32;

beforeAll(async () => {
  server = await startRedis({ isDurable: false });
});
afterAll(() => server.stop());
beforeEach(() => {
  redis = new Redis(server.url);
  fair = new FairQueue({ run: command => command(redis) }, message => expect.fail(message));
});
afterEach(async () => {
  await fair.flush();
  await redis.flushall();
  redis.disconnect();
});

interface Waiting extends Entrant {
  /** What it really takes. */
  usedTokens: number;
}

/** Jobs as BullMQ keeps them, and rows that serve them; each token takes one unit of time. */
class Simulation {
  readonly served = new Map<string, number>();
  readonly order: string[] = [];
  readonly #jobs = new Map<string, Waiting>();
  #nextId = 0;

  async arrive(job: Partial<Waiting> & { tenant: string; tokens: number }): Promise<Awaited<ReturnType<FairQueue['enter']>>> {
    const waiting: Waiting = { ...DEFAULTS, usedTokens: job.tokens, ...job, id: `${job.tenant}-${this.#nextId++}` };
    const entry = await enter(waiting);
    if (entry.outcome === 'entered') this.#jobs.set(waiting.id, waiting);
    return entry;
  }

  /** The foremost job is served to its end. */
  async serve(): Promise<Waiting | undefined> {
    const [id] = await redis.zpopmin(queueKey(MODEL, SHARED_QUEUE, 'prioritized'));
    if (id === undefined) return undefined;
    const job = this.#jobs.get(id)!;
    this.#jobs.delete(id);
    this.order.push(id);
    this.served.set(job.tenant, (this.served.get(job.tenant) ?? 0) + job.usedTokens);
    await redis.del(`${queuePrefix(MODEL)}:${SHARED_QUEUE}:${id}`);
    fair.settle(job, job.usedTokens);
    return job;
  }

  waitingCount(tenant: string): number {
    return [...this.#jobs.values()].filter(job => job.tenant === tenant).length;
  }

  /** Keeps so many jobs of each tenant waiting while so many tokens are served; what each got of them. */
  async contend(tenants: (Partial<Waiting> & { tenant: string; tokens: number; backlog: number })[], tokens: number) {
    this.served.clear();
    let sum = 0;
    while (sum < tokens) {
      for (const { backlog, ...job } of tenants) while (this.waitingCount(job.tenant) < backlog) await this.arrive(job);
      sum += (await this.serve())!.usedTokens;
    }
    return Object.fromEntries([...this.served].map(([tenant, served]) => [tenant, served / sum]));
  }
}

const DEFAULTS: Omit<Entrant, 'id' | 'tenant' | 'tokens'> = {
  ...{ shard: 's', model: MODEL, serviceClass: 'default', weight: 1, maxAheadCount: Number.POSITIVE_INFINITY },
};

function enter(entrant: Entrant, queueNames: readonly string[] = [SHARED_QUEUE]): ReturnType<FairQueue['enter']> {
  return fair.enter(entrant, JSON.stringify({ id: entrant.id }), queueNames);
}

describe('FairQueue', () => {
  it('serves two tenants alike of whom one floods ten times as much', async () => {
    const share = await new Simulation().contend(
      [
        { tenant: 'flood', tokens: 150, backlog: 50 },
        { tenant: 'steady', tokens: 150, backlog: 5 },
      ],
      40_000,
    );
    expect(share.flood).toBeGreaterThan(0.45);
    expect(share.flood).toBeLessThan(0.55);
  });

  it('counts tokens, not requests', async () => {
    const share = await new Simulation().contend(
      [
        { tenant: 'long', tokens: 2_000, backlog: 20 },
        { tenant: 'short', tokens: 100, backlog: 20 },
      ],
      200_000,
    );
    expect(share.long).toBeGreaterThan(0.45);
    expect(share.long).toBeLessThan(0.55);
  });

  it('serves by weight', async () => {
    const share = await new Simulation().contend(
      [
        { tenant: 'one', tokens: 120, weight: 1, backlog: 40 },
        { tenant: 'three', tokens: 120, weight: 3, backlog: 4 },
      ],
      40_000,
    );
    expect(share.three! / share.one!).toBeGreaterThan(2.7);
    expect(share.three! / share.one!).toBeLessThan(3.3);
  });

  it('is not deceived by answers that are longer than was expected', async () => {
    const share = await new Simulation().contend(
      [
        { tenant: 'longer', tokens: 100, usedTokens: 1_000, backlog: 5 },
        { tenant: 'honest', tokens: 100, usedTokens: 100, backlog: 5 },
      ],
      200_000,
    );
    expect(share.longer).toBeGreaterThan(0.45);
    expect(share.longer).toBeLessThan(0.55);
  });

  it('tells what has ended with the next entrance, and by itself when none comes', async () => {
    const simulation = new Simulation();
    const endOf = async (tenant: string) => Number(await redis.zscore(fairKey(MODEL, 'default'), tenant));
    await simulation.arrive({ tenant: 'a', tokens: 100, usedTokens: 140 });
    const expected = await endOf('a');
    await simulation.serve();
    await simulation.arrive({ tenant: 'b', tokens: 10, usedTokens: 30 });
    expect(await endOf('a')).toBe(expected + 40);
    const last = await endOf('b');
    await simulation.serve();
    await expect.poll(() => endOf('b')).toBe(last + 20);
  });

  it('never lets a request of a light tenant wait behind a flood', async () => {
    const simulation = new Simulation();
    for (let i = 0; i < 200; i++) await simulation.arrive({ tenant: 'flood', tokens: 500 });
    for (let round = 0; round < 20; round++) {
      const entry = await simulation.arrive({ tenant: 'light', tokens: 40 });
      expect(entry).toMatchObject({ outcome: 'entered', aheadCount: 0 });
      expect((await simulation.serve())?.tenant).toBe('light');
      for (let i = 0; i < 3; i++) expect((await simulation.serve())?.tenant).toBe('flood');
      for (let i = 0; i < 6; i++) await simulation.arrive({ tenant: 'flood', tokens: 500 });
    }
  });

  it('nor behind one that comes at once', async () => {
    const entrant = (id: string, tenant: string) => ({ ...DEFAULTS, id, tenant, tokens: 500 });
    const flood = await Promise.all(Array.from({ length: 20 }, (_, i) => enter(entrant(`f${i}`, 'flood'))));
    const light = await enter(entrant('l', 'light'));
    const priorities = flood.map(entry => (entry.outcome === 'entered' ? entry.priority : 0));
    expect(new Set(priorities).size).toBe(20);
    expect(light.outcome === 'entered' && light.priority).toBeLessThan(Math.min(...priorities));
  });

  it('holds nothing against a tenant that was alone before', async () => {
    const simulation = new Simulation();
    for (let i = 0; i < 100; i++) {
      await simulation.arrive({ tenant: 'early', tokens: 1_000 });
      await simulation.serve();
    }
    const share = await simulation.contend(
      [
        { tenant: 'early', tokens: 100, backlog: 10 },
        { tenant: 'late', tokens: 100, backlog: 10 },
      ],
      20_000,
    );
    expect(share.early).toBeGreaterThan(0.45);
  });

  it('keeps the order and the shares over the end of the range of priorities', async () => {
    const simulation = new Simulation();
    const rangeTokens = STEPS_PER_CLASS * 4;
    const tenants = [
      { tenant: 'a', tokens: 30_000, backlog: 12 },
      { tenant: 'b', tokens: 10_000, backlog: 6 },
    ];
    const share = await simulation.contend(tenants, 6 * rangeTokens);
    expect(share.a).toBeGreaterThan(0.45);
    expect(share.a).toBeLessThan(0.55);
    // The latest start of all would be far beyond the range, had nothing been moved back.
    expect(Number(await redis.zscore(fairKey(MODEL, 'default'), ' '))).toBeLessThan(rangeTokens);
    // Each tenant's own jobs in the order in which they came.
    for (const tenant of ['a', 'b']) {
      const numbers = simulation.order.filter(id => id.startsWith(tenant)).map(id => Number(id.slice(2)));
      expect(numbers).toEqual([...numbers].sort((x, y) => x - y));
    }
    const scores = (await redis.zrange(queueKey(MODEL, SHARED_QUEUE, 'prioritized'), '0', '-1', 'WITHSCORES')).filter(
      (_, i) => i % 2 === 1,
    );
    for (const score of scores) {
      expect(Number(score) / SCORES_PER_PRIORITY).toBeGreaterThanOrEqual(firstPriority('default'));
      expect(Number(score) / SCORES_PER_PRIORITY).toBeLessThan(firstPriority('flex'));
    }
  });

  it('bounds a burst', async () => {
    const simulation = new Simulation();
    await simulation.arrive({ tenant: 'a', tokens: 100 });
    const burst = await Promise.all(
      Array.from({ length: 10 }, (_, index) => enter({ ...DEFAULTS, id: `burst-${index}`, tenant: 'a', tokens: 100, maxAheadCount: 4 })),
    );
    expect(burst.map(entry => [entry.outcome, entry.aheadCount])).toEqual(
      Array.from({ length: 10 }, (_, index) => (index < 4 ? ['entered', index + 1] : ['refused', 5])),
    );
    // Who comes new has its place before them.
    expect(await simulation.arrive({ tenant: 'b', tokens: 100, maxAheadCount: 0 })).toMatchObject({ outcome: 'entered' });
  });

  it('counts a refused request to nobody', async () => {
    const simulation = new Simulation();
    for (let i = 0; i < 10; i++) await simulation.arrive({ tenant: 'a', tokens: 100 });
    const held = async () => [
      await redis.zrange(fairKey(MODEL, 'default'), '0', '-1', 'WITHSCORES'),
      await redis.zrange(queueKey(MODEL, SHARED_QUEUE, 'prioritized'), '0', '-1', 'WITHSCORES'),
      (await redis.keys('*')).sort(),
    ];
    const before = await held();
    expect(await simulation.arrive({ tenant: 'a', tokens: 100, maxAheadCount: 9 })).toEqual({ outcome: 'refused', aheadCount: 10 });
    expect(await held()).toEqual(before);
    expect(await simulation.arrive({ tenant: 'b', tokens: 100, maxAheadCount: 0 })).toMatchObject({ outcome: 'entered' });
  });

  it('puts classes before tenants, and forgets tenants that are far behind', async () => {
    const simulation = new Simulation();
    await simulation.arrive({ tenant: 'a', tokens: 10, serviceClass: 'flex' });
    await simulation.arrive({ tenant: 'b', tokens: 10_000 });
    await simulation.arrive({ tenant: 'b', tokens: 10_000 });
    await simulation.arrive({ tenant: 'b', tokens: 10, serviceClass: 'priority' });
    const tenants: (string | undefined)[] = [];
    for (let i = 0; i < 4; i++) tenants.push((await simulation.serve())?.serviceClass);
    expect(tenants).toEqual(['priority', 'default', 'default', 'flex']);
    for (let i = 0; i < 150; i++) {
      await simulation.arrive({ tenant: 'c', tokens: 20_000 });
      await simulation.serve();
    }
    expect(await redis.zscore(fairKey(MODEL, 'default'), 'b')).toBeNull();
  });

  it('moves what is on the real queue, and what batchers have of it', async () => {
    const connection = { url: server.url, maxRetriesPerRequest: null };
    const names = [SHARED_QUEUE, ownQueue('x')];
    const workers = names.map(name => new Worker(name, null, { connection, prefix: queuePrefix(MODEL), autorun: false }));
    const add = async (index: number, id: string, tokens: number) => {
      const entry = await enter({ ...DEFAULTS, id, tenant: 'a', tokens, batcherId: index === 0 ? undefined : 'x' }, names);
      if (entry.outcome === 'refused') throw new Error('refused');
      return entry.priority;
    };
    await add(0, 'running', 1_000_000);
    const running = (await workers[0]!.getNextJob('token', { block: false }))!;
    await add(0, 'shared', 1_000_000);
    const before = await add(1, 'own', 900_000);
    // Its start is past the end of the range.
    await add(0, 'last', 10);
    const scoreOf = async (index: number, id: string) => Number(await redis.zscore(queueKey(MODEL, names[index]!, 'prioritized'), id));
    const ownPriority = Math.floor((await scoreOf(1, 'own')) / SCORES_PER_PRIORITY);
    expect(ownPriority).toBeLessThan(before);
    expect(await scoreOf(0, 'last')).toBeGreaterThan(await scoreOf(0, 'shared'));
    expect(ownPriority).toBeGreaterThan(Math.floor((await scoreOf(0, 'shared')) / SCORES_PER_PRIORITY));
    // Given back, it stands before what came after it.
    await running.moveToWait('token');
    const order: (string | undefined)[] = [];
    for (let i = 0; i < 3; i++) order.push((await workers[0]!.getNextJob('token', { block: false }))?.id);
    expect(order).toEqual(['running', 'shared', 'last']);
    await Promise.all(workers.map(worker => worker.close(true)));
  });

  it('puts a job on the queue as BullMQ itself does', async () => {
    const connection = { url: server.url, maxRetriesPerRequest: null };
    const queue = new Queue('theirs', { connection, prefix: queuePrefix(MODEL), streams: { events: { maxLen: 100 } } });
    const entry = await enter({ ...DEFAULTS, id: 'j', tenant: 'a', tokens: 5 });
    const priority = entry.outcome === 'entered' ? entry.priority : 0;
    await queue.add(DEFAULTS.shard, { id: 'j' }, { jobId: 'j', priority, attempts: 100, removeOnComplete: true, removeOnFail: true });
    const of = async (name: string) => {
      const prefix = `${queuePrefix(MODEL)}:${name}`;
      const { timestamp, opts, ...job } = await redis.hgetall(`${prefix}:j`);
      return {
        ...{ job, opts: JSON.parse(opts!), age: Math.round((Date.now() - Number(timestamp)) / 60_000) },
        waiting: await redis.zrange(`${prefix}:prioritized`, '0', '-1', 'WITHSCORES'),
        marker: await redis.zrange(`${prefix}:marker`, '0', '-1', 'WITHSCORES'),
        counters: await redis.mget(`${prefix}:id`, `${prefix}:pc`),
        events: (await redis.xrange(`${prefix}:events`, '-', '+')).map(([, fields]) => fields),
        maxEvents: await redis.hget(`${prefix}:meta`, 'opts.maxLenEvents'),
      };
    };
    expect(await of(SHARED_QUEUE)).toEqual(await of('theirs'));
    // Once more: it stays as it is.
    await enter({ ...DEFAULTS, id: 'j', tenant: 'a', tokens: 5 });
    expect(await redis.zcard(queueKey(MODEL, SHARED_QUEUE, 'prioritized'))).toBe(1);
    await queue.close();
  });

  it('tells where the own queues are', async () => {
    await enter({ ...DEFAULTS, id: 'j', tenant: 'a', tokens: 5, batcherId: 'b 1' }, [SHARED_QUEUE, ownQueue('b 1')]);
    expect(await redis.smembers(ownQueuesKey(MODEL))).toEqual(['b 1']);
    expect(await redis.zcard(queueKey(MODEL, ownQueue('b 1'), 'prioritized'))).toBe(1);
  });
});
