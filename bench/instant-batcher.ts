/**
 * InstantBatcher: a program that stands in for a batcher whose computing takes no time: it takes whatever waits in the real queue and answers
 * every job with as many tokens as it asks for, all jobs one token a step, written as a batcher writes it.
 * Arguments: Redis URL, name of the model.
 */
import { Redis } from 'ioredis';
import { type BatcherCard, CARD_VERSION } from '../shared/batcher-card.ts';
import type { Job } from '../shared/job.ts';
import {
  BATCHER_CARDS,
  CARD_INTERVAL_MS,
  GENERATION_LIFETIME_MS,
  generationKey,
  OUT_STREAM_LENGTH,
  outKey,
  queueKey,
  queuePrefix,
  SHARED_QUEUE,
} from '../shared/keys.ts';
import { encodeEvent, joinedEvents, type TokenEvent } from '../shared/token-event.ts';
import { TOKEN_TEXT } from './token-text.ts';

/** A prompt that ends so asks for a token every so many milliseconds, instead of at once. */
const PACE = /every (\d+) ms$/;
const MAX_TAKEN = 512;
const BLOCK_S = 1;

/**
 * Takes the first jobs off a queue as if they had been done.
 *
 * KEYS[1]  the waiting, by priority
 *
 * ARGV[1]  how many at most
 * ARGV[2]  prefix of the names of jobs
 *
 * Output: their data
 */
const TAKE = `
local taken = redis.call('ZPOPMIN', KEYS[1], ARGV[1])
local data = {}
for at = 1, #taken, 2 do
  local name = ARGV[2] .. taken[at]
  data[#data + 1] = redis.call('HGET', name, 'data')
  redis.call('DEL', name)
end
return data
`;

/**
 * Writes one step: every event to its job's record, and all to the brokers' stream.
 *
 * KEYS[1]  the stream of one shard
 *
 * ARGV[1]  all events, an array in JSON
 * ARGV[2]  length of the stream
 * ARGV[3]  lifetime of a record in ms
 * ARGV[4..]  of each event: its record, its sequence number, itself in JSON
 */
const TELL = `
for at = 4, #ARGV, 3 do
  redis.call('XADD', ARGV[at], (ARGV[at + 1] + 1) .. '-0', 'e', ARGV[at + 2])
  if ARGV[at + 1] == '0' then redis.call('PEXPIRE', ARGV[at], ARGV[3]) end
end
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'e', ARGV[1])
return 0
`;

interface Row {
  id: string;
  shard: string;
  seq: number;
  sentCount: number;
  tokenCount: number;
}

const [redisUrl, model] = process.argv.slice(2);
if (redisUrl === undefined || model === undefined) throw new Error('usage: instant-batcher.ts REDIS_URL MODEL');
const commands = new Redis(redisUrl);
const blocking = new Redis(redisUrl);
commands.defineCommand('takeJobs', { numberOfKeys: 1, lua: TAKE });
commands.defineCommand('tell', { numberOfKeys: 1, lua: TELL });
const scripts = commands as unknown as {
  takeJobs(key: string, count: number, prefix: string): Promise<string[]>;
  tell(key: string, ...args: (string | number)[]): Promise<void>;
};
/** By milliseconds between two steps; 0 has none. */
const batches = new Map<number, Row[]>();

await publishCard();
setInterval(() => void publishCard(), CARD_INTERVAL_MS);
process.stdout.write('ready\n');
for (;;) {
  const taken = await scripts.takeJobs(queueKey(model, SHARED_QUEUE, 'prioritized'), MAX_TAKEN, `${queuePrefix(model)}:${SHARED_QUEUE}:`);
  if (taken.length === 0) await blocking.bzpopmin(queueKey(model, SHARED_QUEUE, 'marker'), BLOCK_S);
  else await begin(taken.map(json => JSON.parse(json) as Job));
}

async function publishCard(): Promise<void> {
  const now = Date.now();
  const card: BatcherCard = {
    version: CARD_VERSION,
    batcherId: 'instant',
    model: model!,
    contextTokens: 1_000_000,
    writtenAt: now,
    startedAt: now,
    state: 'serving',
    runningCount: 0,
    waitingCount: 0,
    maxRunningCount: 1_000_000,
    kvCapacityTokens: 1_000_000,
    kvUsedTokens: 0,
    prefillTokensPerSecond: 0,
    decodeTokensPerSecond: 0,
  };
  await commands.hset(BATCHER_CARDS, card.batcherId, JSON.stringify(card));
}

async function begin(jobs: readonly Job[]): Promise<void> {
  const events: { shard: string; event: TokenEvent }[] = [];
  const going: { row: Row; stepMs: number }[] = [];
  for (const job of jobs) {
    const row: Row = { id: job.id, shard: job.shard, seq: 0, sentCount: 0, tokenCount: job.stopping.maxTokens ?? 1 };
    events.push({ shard: row.shard, event: { type: 'accepted', id: row.id, attempt: 1, seq: row.seq++, promptTokens: 10 } });
    const stepMs = paceOf(job);
    if (stepMs === 0) events.push(...step(row).map(event => ({ shard: row.shard, event })));
    if (row.sentCount < row.tokenCount) going.push({ row, stepMs });
  }
  await tell(events);
  // Behind what was just told: events of a job leave in order.
  for (const { row, stepMs } of going) join(row, stepMs);
}

function paceOf(job: Job): number {
  const last = job.prompt.kind === 'chat' ? job.prompt.messages.at(-1)?.content : undefined;
  return Number(PACE.exec(last ?? '')?.[1] ?? 0);
}

function join(row: Row, stepMs: number): void {
  const batch = batches.get(stepMs);
  if (batch !== undefined) {
    batch.push(row);
    return;
  }
  batches.set(stepMs, [row]);
  void run(stepMs);
}

/** Steps until nobody is left. A step that is late is not made up for. */
async function run(stepMs: number): Promise<void> {
  for (let dueAt = performance.now(); ; ) {
    dueAt = Math.max(dueAt + stepMs, performance.now());
    if (stepMs > 0) await new Promise(resolve => setTimeout(resolve, Math.max(0, dueAt - performance.now())));
    const rows = batches.get(stepMs)!;
    batches.set(
      stepMs,
      rows.filter(row => row.sentCount + 1 < row.tokenCount),
    );
    await tell(rows.flatMap(row => step(row).map(event => ({ shard: row.shard, event }))));
    if (batches.get(stepMs)!.length > 0) continue;
    batches.delete(stepMs);
    return;
  }
}

/** One token more, and the end with the last. */
function step(row: Row): TokenEvent[] {
  const { id } = row;
  row.sentCount += 1;
  const isLast = row.sentCount >= row.tokenCount;
  const delta: TokenEvent = {
    type: 'delta',
    id,
    attempt: 1,
    seq: row.seq++,
    choice: 0,
    tokenIds: [row.sentCount],
    text: TOKEN_TEXT,
    ...(isLast && { finishReason: 'length' }),
  };
  if (!isLast) return [delta];
  const usage = { promptTokens: 10, completionTokens: row.tokenCount, cachedTokens: 0 };
  const timings = { queueMs: 0, prefillMs: 0, ttftMs: 0, decodeTokensPerSecond: 0 };
  return [delta, { type: 'finish', id, attempt: 1, seq: row.seq++, usage, timings }];
}

async function tell(events: readonly { shard: string; event: TokenEvent }[]): Promise<void> {
  await Promise.all(
    [...Map.groupBy(events, ({ shard }) => shard)].map(([shard, group]) => {
      const texts = group.map(({ event }) => encodeEvent(event));
      const records = group.flatMap(({ event: { id, seq } }, index) => [generationKey(id), seq, texts[index]!]);
      return scripts.tell(outKey(shard), joinedEvents(texts), OUT_STREAM_LENGTH, GENERATION_LIFETIME_MS, ...records);
    }),
  );
}
