/** QuickJobs: each job is answered once, whatever comes back, fails or dies; with a real Redis, and a service that does what the case says. */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { Outbox } from '../../../batcher/outbox.ts';
import type { TakenJob } from '../../../batcher/queue-worker.ts';
import type { QuickAnswer } from '../../../batcher/quick/quick-answer.ts';
import { QuickJobs } from '../../../batcher/quick/quick-jobs.ts';
import { connectRedis, type RedisClient } from '../../../batcher/redis.ts';
import { ApiError } from '../../../shared/errors.ts';
import type { Job } from '../../../shared/job.ts';
import { BULKY_LIFETIME_MS, fenceKey, generationKey, OUT_ENTRY_BYTES, outKey } from '../../../shared/keys.ts';
import { decodeEvents, type TokenEvent } from '../../../shared/token-event.ts';
import { type RedisServer, startRedis } from '../../redis-server.ts';

let server: RedisServer;
let redis: RedisClient;
beforeAll(async () => {
  server = await startRedis();
  redis = connectRedis(server.url);
  redis.on('error', () => undefined);
});
afterAll(async () => {
  redis.disconnect();
  await server.stop();
});
beforeEach(() => redis.flushall());

const JOB: Job = {
  ...{ version: 1, id: 'tok-1', model: 'm', tenant: 't', shard: 's', submittedAt: 0, choiceCount: 1, serviceClass: 'default' },
  prompt: { kind: 'text', text: 'a' },
  task: { kind: 'tokenize', addSpecialTokens: true, addGenerationPrompt: true, tellTexts: false },
  sampling: { temperature: 0 },
  stopping: { maxTokens: 0 },
};
const ANSWER: QuickAnswer = { type: 'tokens', tokenIds: [7], contextTokens: 10 };

type Settled = 'completed' | 'given back';

function taken(more: Partial<TakenJob> = {}): TakenJob & { settled: Settled[] } {
  const settled: Settled[] = [];
  return {
    ...{ id: JOB.id, data: JOB, attempt: 1, deathCount: 0, settled },
    complete: async () => void settled.push('completed'),
    giveBack: async () => void settled.push('given back'),
    ...more,
  };
}

function open(ask: () => Promise<QuickAnswer>) {
  const errors: string[] = [];
  const onError = (error: Error) => void errors.push(error.message);
  const jobs = new QuickJobs({ ask, outbox: new Outbox(redis), maxAttempts: 3, clock: () => 5, onError });
  return { jobs, errors };
}

const recorded = async (): Promise<TokenEvent[]> =>
  (await redis.xrange(generationKey(JOB.id), '-', '+')).flatMap(([, fields]) => decodeEvents(`[${fields[1]}]`));
const told = async (): Promise<TokenEvent[]> =>
  (await redis.xrange(outKey('s'), '-', '+')).flatMap(([, fields]) => decodeEvents(fields[1]!));

test('an answer is recorded for a short while, told, and settled', async () => {
  const job = taken();
  await open(async () => ANSWER).jobs.submit(job);
  const events = await recorded();
  expect(events.map(event => [event.seq, event.type])).toEqual([
    [0, 'accepted'],
    [1, 'tokens'],
    [2, 'finish'],
  ]);
  expect(events[2]).toMatchObject({ usage: { promptTokens: 0, completionTokens: 0 }, timings: { queueMs: 5 } });
  expect(await told()).toEqual(events);
  expect(await redis.pttl(generationKey(JOB.id))).toBeLessThanOrEqual(BULKY_LIFETIME_MS);
  expect(job.settled).toEqual(['completed']);
});

test('a large answer is in the record alone; its end is told', async () => {
  const tokenIds = Array.from({ length: OUT_ENTRY_BYTES }, (_, id) => id);
  await open(async () => ({ ...ANSWER, tokenIds })).jobs.submit(taken());
  expect((await recorded())[1]).toMatchObject({ tokenIds });
  expect((await told()).map(event => event.type)).toEqual(['accepted', 'finish']);
});

test("the client's fault is an error that names the field", async () => {
  const job = taken();
  const fault = new ApiError('invalid_value', 'No such token.', { param: 'tokens' });
  await open(() => Promise.reject(fault)).jobs.submit(job);
  expect(await recorded()).toMatchObject([{ type: 'error', code: 'invalid_value', message: 'No such token.', param: 'tokens' }]);
  expect(job.settled).toEqual(['completed']);
});

test('another failure goes back to the queue, until it has been tried often enough', async () => {
  const { jobs, errors } = open(() => Promise.reject(new Error('the thread ended')));
  for (const attempt of [1, 2]) {
    const job = taken({ attempt });
    await jobs.submit(job);
    expect(job.settled).toEqual(['given back']);
  }
  expect(await recorded()).toEqual([]);
  const last = taken({ attempt: 3 });
  await jobs.submit(last);
  expect(await recorded()).toMatchObject([{ type: 'error', code: 'generation_failed' }]);
  expect(last.settled).toEqual(['completed']);
  expect(errors).toEqual(Array(3).fill('the thread ended'));
});

test('one over which batchers die is not asked again', async () => {
  let askedCount = 0;
  const ask = async () => {
    askedCount++;
    return ANSWER;
  };
  await open(ask).jobs.submit(taken({ attempt: 4, deathCount: 3 }));
  expect(askedCount).toBe(0);
  expect(await recorded()).toMatchObject([{ type: 'error', code: 'generation_failed' }]);
});

test('what an earlier attempt has answered stays as it is', async () => {
  const { jobs } = open(async () => ANSWER);
  await jobs.submit(taken());
  const before = await recorded();
  const again = taken({ attempt: 2 });
  await jobs.submit(again);
  expect(await recorded()).toEqual(before);
  expect(again.settled).toEqual(['completed']);
});

test('an attempt that was overtaken says nothing', async () => {
  await redis.set(fenceKey(JOB.id), '5');
  const job = taken({ attempt: 2 });
  await open(async () => ANSWER).jobs.submit(job);
  expect(await recorded()).toEqual([]);
  expect(job.settled).toEqual([]);
});

test('one that is lost while it is answered is left to its new holder', async () => {
  const asked = Promise.withResolvers<QuickAnswer>();
  const { jobs } = open(() => asked.promise);
  const job = taken();
  const submitted = jobs.submit(job);
  expect(jobs.count).toBe(1);
  jobs.lost(JOB.id);
  asked.resolve(ANSWER);
  await submitted;
  await jobs.idle();
  expect([await recorded(), job.settled]).toEqual([[], []]);
});

test.each([
  ['no job', { id: JOB.id }],
  ["another's id", { ...JOB, id: 'tok-2' }],
])('%s leaves the queue', async (_name, data) => {
  const { jobs, errors } = open(async () => ANSWER);
  const job = taken({ data });
  await jobs.submit(job);
  expect([await redis.keys('*'), job.settled]).toEqual([[], ['completed']]);
  expect(errors[0]).toContain('unreadable job');
});
