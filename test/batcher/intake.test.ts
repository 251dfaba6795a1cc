/** The intake against a real Redis and a real BullMQ queue. */
import { Queue } from 'bullmq';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Intake } from '../../batcher/intake.ts';
import { OwnQueues } from '../../batcher/own-queues.ts';
import type { TakenJob } from '../../batcher/queue-worker.ts';
import { connectionOptions, connectRedis } from '../../batcher/redis.ts';
import { Room } from '../../batcher/room.ts';
import { BATCHER_CARDS, ownQueue, ownQueuesKey, queuePrefix, SHARED_QUEUE } from '../../shared/keys.ts';
import { type RedisServer, startRedis } from '../redis-server.ts';

let server: RedisServer;
let queue: Queue;
let intakes: Intake[] = [];
const MODEL = 'm';

beforeAll(async () => {
  server = await startRedis();
});
afterAll(() => server.stop());
beforeEach(() => {
  queue = new Queue(SHARED_QUEUE, { connection: connectionOptions(server.url), prefix: queuePrefix(MODEL) });
  queue.on('error', () => undefined);
});
afterEach(async () => {
  await Promise.all(intakes.map(intake => intake.close()));
  intakes = [];
  await queue.obliterate({ force: true });
  await queue.close();
});

interface Watched {
  intake: Intake;
  taken: TakenJob[];
  lost: string[];
}

async function open(batcherId: string, options: { room?: () => Promise<void>; lockMs?: number } = {}): Promise<Watched> {
  const taken: TakenJob[] = [];
  const lost: string[] = [];
  const intake = new Intake({
    redisUrl: server.url,
    model: MODEL,
    batcherId,
    lockMs: options.lockMs ?? 600,
    room: options.room ?? (async () => undefined),
    take: job => taken.push(job),
    lost: id => lost.push(id),
    failed: () => undefined,
  });
  await intake.start();
  intakes.push(intake);
  return { intake, taken, lost };
}

const add = (id: string) => queue.add(SHARED_QUEUE, { id }, { jobId: id, priority: 1, removeOnComplete: true, removeOnFail: true });

async function until(isTrue: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isTrue())) await new Promise(resolve => setTimeout(resolve, 10));
}

describe('Intake', () => {
  it('takes a job, holds it while it lasts longer than the lock, and takes it off the queue', async () => {
    const { taken, lost, intake } = await open('a');
    await add('job-1');
    await until(() => taken.length === 1);
    expect(taken[0]).toMatchObject({ id: 'job-1', data: { id: 'job-1' }, attempt: 1 });
    await new Promise(resolve => setTimeout(resolve, 1_500));
    expect(await queue.getActiveCount()).toBe(1);
    await taken[0]!.complete();
    expect(lost).toEqual([]);
    expect(intake.heldCount).toBe(0);
    expect(await queue.getJobCounts()).toMatchObject({ active: 0, completed: 0, prioritized: 0, failed: 0 });
  });

  it('takes no more than there is room for', async () => {
    const seen: TakenJob[] = [];
    const room = new Room(() => seen.length < 2);
    const { taken } = await open('a', { room: () => room.wait() });
    const push = taken.push.bind(taken);
    taken.push = (...jobs) => {
      seen.push(...jobs);
      return push(...jobs);
    };
    for (let i = 0; i < 5; i++) await add(`job-${i}`);
    await until(() => taken.length === 2);
    await new Promise(resolve => setTimeout(resolve, 200));
    expect(taken).toHaveLength(2);
    await seen.splice(0)[0]!.complete();
    room.changed();
    await until(() => taken.length === 4);
  });

  it('hands a job of a silent holder to another, with the next attempt number', async () => {
    const first = await open('a');
    await add('job-1');
    await until(() => first.taken.length === 1);
    // Gone without a word: no renewal, no settling.
    await first.intake.close();
    intakes = [];
    const second = await open('b');
    await until(() => second.taken.length === 1);
    expect(second.taken[0]).toMatchObject({ id: 'job-1', attempt: 2 });
    await first.taken[0]!.complete();
    expect(await queue.getActiveCount()).toBe(1);
    await second.taken[0]!.complete();
    expect(await queue.getActiveCount()).toBe(0);
  });

  it('gives a job back for another to take', async () => {
    const first = await open('a');
    await add('job-1');
    await until(() => first.taken.length === 1);
    first.intake.stopTaking();
    await first.taken[0]!.giveBack();
    const second = await open('b');
    await until(() => second.taken.length === 1);
    expect(second.taken[0]!.attempt).toBeGreaterThan(1);
    expect(first.taken).toHaveLength(1);
    await second.taken[0]!.complete();
  });

  it('goes on after Redis was away', async () => {
    const { taken } = await open('a');
    await server.halt();
    await server.resume();
    await add('job-1');
    await until(() => taken.length === 1);
    await taken[0]!.complete();
  });
});

describe('Intake that comes and goes', () => {
  it('case 61: a job that was being fetched when the batcher closed is back on the queue, not left to be found stalled', async () => {
    // Longer than the test may take: whatever is left active is not found by it.
    const lockMs = 120_000;
    const completed: string[] = [];
    for (let round = 0; round < 6; round++) {
      const { intake, taken } = await open('a', { lockMs });
      const adding = Array.from({ length: 20 }, (_, i) => add(`job-${round}-${i}`));
      // It closes at another moment of the burst each time.
      await until(() => taken.length > 3 * round);
      intake.stopTaking();
      await Promise.all(adding);
      const held = [...taken];
      await Promise.all(held.map(job => (held.indexOf(job) % 2 === 0 ? job.complete() : job.giveBack())));
      completed.push(...held.filter((_, i) => i % 2 === 0).map(job => job.id));
      await intake.close();
      intakes = [];
      expect(taken).toHaveLength(held.length);
      expect(await queue.getActiveCount()).toBe(0);
    }
    const last = await open('a', { lockMs });
    await until(() => completed.length + last.taken.length === 120);
    for (const job of last.taken) await job.complete();
    const ids = [...completed, ...last.taken.map(job => job.id)];
    expect(new Set(ids).size).toBe(120);
    expect(await queue.getJobCounts()).toMatchObject({ active: 0, completed: 0, prioritized: 0, failed: 0 });
  });
});

describe('Intake with several queues', () => {
  let redis: ReturnType<typeof connectRedis>;
  beforeEach(() => {
    redis = connectRedis(server.url);
  });
  afterEach(async () => {
    await redis.flushall();
    redis.disconnect();
  });

  async function addTo(queueName: string, id: string, priority: number): Promise<void> {
    const target = new Queue(queueName, { connection: connectionOptions(server.url), prefix: queuePrefix(MODEL) });
    await target.add('generate', { id }, { jobId: id, priority, removeOnComplete: true, removeOnFail: true });
    await target.close();
  }

  function watch(batcherId: string, onOrphans: (ids: readonly string[]) => void): OwnQueues {
    return new OwnQueues({ redis, model: MODEL, batcherId, onOrphans, failed: () => undefined });
  }

  const card = (batcherId: string, more: object = {}) =>
    redis.hset(
      BATCHER_CARDS,
      batcherId,
      JSON.stringify({
        ...{ version: 1, batcherId, model: MODEL, contextTokens: 100, writtenAt: Date.now(), startedAt: 0, state: 'serving' },
        ...{ runningCount: 0, waitingCount: 0, maxRunningCount: 1, kvCapacityTokens: 1, kvUsedTokens: 0 },
        ...{ prefillTokensPerSecond: 0, decodeTokensPerSecond: 0, ...more },
      }),
    );

  it('takes from both in the order of priorities, the own one first where they are level', async () => {
    await addTo(SHARED_QUEUE, 'shared-1', 1);
    await addTo(SHARED_QUEUE, 'shared-5', 5);
    await addTo(ownQueue('a'), 'own-3', 3);
    await addTo(ownQueue('a'), 'own-5', 5);
    await addTo(ownQueue('b'), 'not-ours', 1);
    const { taken } = await open('a');
    await until(() => taken.length >= 4);
    expect(taken.map(job => job.id)).toEqual(['shared-1', 'own-3', 'own-5', 'shared-5']);
  });

  it('is woken by a job in either', async () => {
    const { taken } = await open('a');
    await new Promise(resolve => setTimeout(resolve, 100));
    await addTo(ownQueue('a'), 'own', 1);
    await until(() => taken.length === 1);
    await addTo(SHARED_QUEUE, 'shared', 1);
    await until(() => taken.length === 2);
  });

  it('is woken by a job that another gave back', async () => {
    const first = await open('a');
    await add('job-1');
    await until(() => first.taken.length === 1);
    const second = await open('b');
    await new Promise(resolve => setTimeout(resolve, 300));
    first.intake.stopTaking();
    await first.taken[0]!.giveBack();
    await until(() => second.taken.length === 1);
  });

  it('adopts the queue of a dead batcher, with what it was working on, until it is empty and gone', async () => {
    const dead = await open('dead');
    await card('dead');
    await watch('dead', () => undefined).look();
    await addTo(ownQueue('dead'), 'running', 1);
    await until(() => dead.taken.length === 1);
    await dead.intake.close();
    intakes = [];
    await addTo(ownQueue('dead'), 'waiting', 2);

    const live = await open('live');
    let orphans: readonly string[] = [];
    const queues = watch('live', ids => {
      orphans = ids;
      void live.intake.adopt(ids);
    });
    await queues.look();
    expect(orphans).toEqual([]);
    await card('dead', { writtenAt: Date.now() - 60_000 });
    await queues.look();
    expect(orphans).toEqual(['dead']);
    await until(() => live.taken.length === 2);
    expect(live.taken.map(job => [job.id, job.attempt]).sort()).toEqual([
      ['running', 2],
      ['waiting', 1],
    ]);
    await queues.look();
    expect(orphans).toEqual(['dead']);
    for (const job of live.taken) await job.complete();
    await queues.look();
    expect(orphans).toEqual([]);
    expect(await redis.smembers(ownQueuesKey(MODEL))).toEqual(['live']);
    // Of its stalled check, which is made while the queue is being closed, a key may come back that ends by itself.
    await live.intake.adopt([]);
    const left = await redis.keys(`${queuePrefix(MODEL)}:${ownQueue('dead')}:*`);
    expect(left.filter(key => !key.endsWith('stalled-check'))).toEqual([]);
  });

  it('adopts the queue of a batcher that drains, and leaves it when that one serves again', async () => {
    const live = await open('live');
    let orphans: readonly string[] = [];
    const queues = watch('live', ids => {
      orphans = ids;
      void live.intake.adopt(ids);
    });
    await card('other', { state: 'draining' });
    await watch('other', () => undefined).look();
    await addTo(ownQueue('other'), 'first', 1);
    await queues.look();
    expect(orphans).toEqual(['other']);
    await until(() => live.taken.length === 1);
    await card('other');
    await queues.look();
    await live.intake.adopt([]);
    await addTo(ownQueue('other'), 'second', 1);
    await live.taken[0]!.complete();
    await new Promise(resolve => setTimeout(resolve, 300));
    expect(live.taken).toHaveLength(1);
    const other = await open('other');
    await until(() => other.taken.length === 1);
    await other.taken[0]!.complete();
  });
});

describe('a job that BullMQ cannot read', () => {
  it.each([
    ['data', { data: '{"id":', opts: '{}' }],
    ['options', { data: '{}', opts: 'null' }],
    ['options that are no JSON', { data: '{}', opts: '<' }],
  ])('for its %s leaves the queue, and the next is taken', async (_, fields) => {
    const { taken } = await open('a', { lockMs: 60_000 });
    const prefix = `${queuePrefix(MODEL)}:${SHARED_QUEUE}`;
    const redis = connectRedis(server.url);
    await redis.hset(`${prefix}:broken`, { name: 'generate', timestamp: Date.now(), ...fields });
    await redis.zadd(`${prefix}:prioritized`, 1, 'broken');
    await add('good');
    await until(() => taken.length === 1);
    expect(taken[0]!.id).toBe('good');
    await taken[0]!.complete();
    expect(await redis.exists(`${prefix}:broken`, `${prefix}:broken:lock`)).toBe(0);
    expect(await queue.getJobCounts()).toMatchObject({ active: 0, prioritized: 0 });
    redis.disconnect();
  });
});
