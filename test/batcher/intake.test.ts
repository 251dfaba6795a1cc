/** The intake against a real Redis and a real BullMQ queue. */
import { Queue } from 'bullmq';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Intake, type TakenJob } from '../../batcher/intake.ts';
import { connectionOptions } from '../../batcher/redis.ts';
import { Room } from '../../batcher/room.ts';
import { queuePrefix, SHARED_QUEUE } from '../../shared/keys.ts';
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
    queueName: SHARED_QUEUE,
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
