/**
 * TokenSource: stands in for a batcher in tests of the gateway. It takes real jobs off the real queue and writes the events that the
 * job's own prompt asks for, so that a test says in one place what is to come; everything else of a batcher's contract holds.
 */
import { Worker } from 'bullmq';
import { Redis } from 'ioredis';
import type { BatcherCard } from '../../shared/batcher-card.ts';
import { Job, promptsOf, TASK_KINDS, type Task } from '../../shared/job.ts';
import {
  BATCHER_CARDS,
  CARD_INTERVAL_MS,
  cancelKey,
  GENERATION_LIFETIME_MS,
  generationKey,
  OUT_STREAM_LENGTH,
  outKey,
  ownQueue,
  QUICK_QUEUE,
  queuePrefix,
  SHARED_QUEUE,
} from '../../shared/keys.ts';
import type { CallDelta, TokenEvent } from '../../shared/token-event.ts';

/** What the last user message may hold, as JSON; any other text is answered word for word. */
export interface Script {
  /** One delta each, for every choice. One that is a stop string of the job ends them. */
  pieces?: string[];
  /** The pieces again and again, this many times. */
  repeat?: number;
  /** Before the pieces, one delta each: what every choice says to itself. */
  reasoning?: string[];
  /** Of calls that every choice makes, behind the pieces: one delta each. */
  calls?: CallDelta[];
  stepMs?: number;
  /** Milliseconds until `accepted`. */
  acceptAfterMs?: number;
  finishReason?: 'stop' | 'length' | 'tool_calls';
  /** An error in place of `accepted` (`at` absent), or of the piece of this index. */
  error?: { code: string; message: string; param?: string; at?: number };
  /** From the piece of this index on nothing is written any more. */
  silentAt?: number;
  /** Each entry of `out` is written this many times. */
  copies?: number;
  /** Events of these sequence numbers are in the job's record only, as if `out` had been trimmed. */
  missing?: number[];
  /** After the piece of index 0 comes a forged piece of an older attempt. */
  stale?: boolean;
}

export interface TokenSource {
  /** Ids of jobs in the order in which they were taken. */
  readonly taken: string[];
  /** Ids of jobs whose cancel flag was seen while they ran. */
  readonly cancelled: string[];
  readonly jobs: Map<string, Job>;
  readonly redis: Redis;
  readonly card: BatcherCard;
  /** Takes no further jobs until resumed; its card stays fresh. Resolves when the look for one that is under way is over. */
  hold(): Promise<void>;
  resume(): void;
  /** Writes the card as it is now. */
  publish(): Promise<void>;
  stop(): Promise<void>;
}

export interface TokenSourceOptions {
  redisUrl: string;
  model?: string;
  contextTokens?: number;
  /** Jobs that run at once. */
  rowCount?: number;
  batcherId?: string;
}

/** Of every text. */
const VECTOR = [0.5, -0.5, 0.5, 0.5];
const LOCK_TOKEN = 'token-source';
const POLL_MS = 10;

export async function startTokenSource(options: TokenSourceOptions): Promise<TokenSource> {
  const model = options.model ?? 'test-model';
  const rowCount = options.rowCount ?? 64;
  const redis = new Redis(options.redisUrl, { maxRetriesPerRequest: null, retryStrategy: () => 50 });
  redis.on('error', () => undefined);
  const batcherId = options.batcherId ?? `source-${model}`;
  const workers = [QUICK_QUEUE, ownQueue(batcherId), SHARED_QUEUE].map(
    name =>
      new Worker(name, null, {
        connection: { url: options.redisUrl, maxRetriesPerRequest: null, retryStrategy: () => 50 },
        prefix: queuePrefix(model),
        autorun: false,
        lockDuration: 60_000,
        removeOnComplete: { count: 0 },
        removeOnFail: { count: 0 },
      }),
  );
  for (const worker of workers) {
    worker.on('error', () => undefined);
    await worker.waitUntilReady();
  }

  const now = Date.now();
  const card: BatcherCard = {
    version: 1,
    batcherId,
    model,
    contextTokens: options.contextTokens ?? 100_000,
    tasks: [...TASK_KINDS],
    dimensions: VECTOR.length,
    writtenAt: now,
    startedAt: now,
    state: 'serving',
    runningCount: 0,
    waitingCount: 0,
    ownQueueCount: 0,
    maxRunningCount: rowCount,
    kvCapacityTokens: 100_000,
    kvUsedTokens: 0,
    prefillTokensPerSecond: 0,
    decodeTokensPerSecond: 0,
  };
  const taken: string[] = [];
  const cancelled: string[] = [];
  const jobs = new Map<string, Job>();
  let isHeld = false;
  let isStopped = false;
  let running = 0;
  let looking: Promise<unknown> = Promise.resolve();

  const publish = async () => {
    card.writtenAt = Date.now();
    await redis.hset(BATCHER_CARDS, card.batcherId, JSON.stringify(card));
  };
  await publish();
  const heartbeat = setInterval(() => void publish().catch(() => undefined), CARD_INTERVAL_MS);

  const next = async () => {
    for (const worker of workers) {
      const queued = await worker.getNextJob(LOCK_TOKEN, { block: false }).catch(() => undefined);
      if (queued !== undefined) return queued;
    }
    return undefined;
  };
  const take = async () => {
    while (!isStopped) {
      if (isHeld || running >= rowCount) {
        await pause(POLL_MS);
        continue;
      }
      // Without blocking, so that nothing is fetched any more once it is held.
      const look = next();
      looking = look;
      const queued = await look;
      if (queued === undefined) {
        await pause(POLL_MS);
        continue;
      }
      const job = Job.parse(queued.data);
      taken.push(job.id);
      jobs.set(job.id, job);
      running++;
      void play(redis, job, { cancelled, isStopped: () => isStopped })
        .catch(() => undefined)
        .finally(() => {
          running--;
          return queued.moveToCompleted(null, LOCK_TOKEN, false).catch(() => undefined);
        });
    }
  };
  const taking = take();

  return {
    taken,
    cancelled,
    jobs,
    redis,
    card,
    publish,
    async hold() {
      isHeld = true;
      await looking;
    },
    resume: () => {
      isHeld = false;
    },
    async stop() {
      isStopped = true;
      clearInterval(heartbeat);
      await Promise.all(workers.map(worker => worker.close(true).catch(() => undefined)));
      await taking;
      redis.disconnect();
    },
  };
}

function scriptOf(job: Job): Script {
  if (job.prompt.kind === 'tokens') return { pieces: job.prompt.tokenIds.map(String) };
  if (job.prompt.kind === 'text') return { pieces: job.prompt.text.split(/(?<= )/) };
  const text = job.prompt.messages.findLast(message => message.role === 'user')?.content ?? '';
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  } catch {
    // Plain text.
  }
  return { pieces: text.split(/(?<= )/) };
}

type Unnumbered = TokenEvent extends infer E ? (E extends TokenEvent ? Omit<E, 'id' | 'attempt' | 'seq'> : never) : never;

async function play(redis: Redis, job: Job, watch: { cancelled: string[]; isStopped(): boolean }): Promise<void> {
  const script = scriptOf(job);
  const maxTokens = job.stopping.maxTokens ?? Number.POSITIVE_INFINITY;
  const wanted = Array<string[]>(script.repeat ?? 1)
    .fill(script.pieces ?? [])
    .flat();
  const stopText = job.stopping.stop?.find(stop => wanted.slice(0, maxTokens).includes(stop));
  const pieces = stopText === undefined ? wanted.slice(0, maxTokens) : wanted.slice(0, wanted.indexOf(stopText));
  const promptTokens = job.prompt.kind === 'chat' ? job.prompt.messages.reduce((sum, { content }) => sum + (content?.length ?? 0), 0) : 0;
  const choiceCount = promptsOf(job).length * job.choiceCount;
  let seq = 0;
  const send = async (events: Unnumbered[]) => {
    const numbered = events.map(event => ({ ...event, id: job.id, attempt: 2, seq: seq++ }) as TokenEvent);
    const pipeline = redis.pipeline();
    for (const event of numbered) pipeline.xadd(generationKey(job.id), `${event.seq + 1}-0`, 'e', JSON.stringify(event));
    pipeline.pexpire(generationKey(job.id), GENERATION_LIFETIME_MS);
    const live = JSON.stringify(numbered.filter(event => !script.missing?.includes(event.seq)));
    for (let copy = 0; copy < (script.copies ?? 1); copy++) {
      pipeline.xadd(outKey(job.shard), 'MAXLEN', '~', OUT_STREAM_LENGTH, '*', 'e', live);
    }
    await pipeline.exec();
  };

  await pause(script.acceptAfterMs ?? 0);
  if (script.error !== undefined && script.error.at === undefined) {
    await send([{ type: 'error', ...script.error }]);
    return;
  }
  if (job.task?.kind === 'embed' && (job.task.dimensions ?? 0) > VECTOR.length) {
    await send([{ type: 'error', code: 'invalid_value', message: 'More numbers than there are.', param: 'dimensions' }]);
    return;
  }
  if (job.task !== undefined) {
    const usage = { promptTokens: job.task.kind === 'embed' ? promptsOf(job).length : 0, completionTokens: 0, cachedTokens: 0 };
    const timings = { queueMs: 1, prefillMs: 0, ttftMs: 1, decodeTokensPerSecond: 0 };
    await send([{ type: 'accepted', promptTokens: usage.promptTokens }, answerTo(job, job.task), { type: 'finish', usage, timings }]);
    return;
  }
  await send([{ type: 'accepted', promptTokens }]);
  const isCut = stopText === undefined && pieces.length < wanted.length;
  const calls = isCut ? [] : (script.calls ?? []);
  const finishReason = script.finishReason ?? (isCut ? 'length' : calls.length > 0 ? 'tool_calls' : 'stop');
  const reasoning = script.reasoning ?? [];
  const parts: { text: string; reasoning?: string; calls?: CallDelta[] }[] = [
    ...reasoning.map(text => ({ text: '', reasoning: text })),
    ...pieces.map(text => ({ text })),
    ...calls.map(call => ({ text: '', calls: [call] })),
  ];
  // One that says nothing ends all the same.
  if (parts.length === 0) parts.push({ text: '' });
  for (const [index, { text, reasoning: thought, calls: told }] of parts.entries()) {
    if (watch.isStopped() || script.silentAt === index) return;
    if (script.error?.at === index) {
      await send([{ type: 'error', code: script.error.code, message: script.error.message }]);
      return;
    }
    if ((await redis.exists(cancelKey(job.id))) === 1) {
      watch.cancelled.push(job.id);
      await send([{ type: 'error', code: 'request_cancelled', message: 'The request was cancelled.' }]);
      return;
    }
    const choices = Array.from({ length: choiceCount }, (_, choice) => choice);
    const isLast = index === parts.length - 1;
    const deltas: Unnumbered[] = choices.map(choice => ({
      type: 'delta',
      choice,
      tokenIds: [index],
      text,
      ...(thought !== undefined && { reasoning: thought }),
      ...(told !== undefined && { calls: told }),
      ...(job.sampling.topLogprobs !== undefined && {
        logprobs: [{ token: text, tokenId: index, logprob: -0.5, bytes: [...Buffer.from(text)], top: [] }],
      }),
      ...(isLast && { finishReason }),
      ...(isLast && stopText !== undefined && { stopText }),
    }));
    if (isLast) {
      const usage = {
        ...{ promptTokens, completionTokens: parts.length * choiceCount, cachedTokens: 0 },
        ...(script.reasoning !== undefined && { reasoningTokens: reasoning.length * choiceCount }),
      };
      deltas.push({ type: 'finish', usage, timings: { queueMs: 1, prefillMs: 2, ttftMs: 3, decodeTokensPerSecond: 4 } });
    }
    await send(deltas);
    if (script.stale && index === 0) {
      const forged = { type: 'delta', id: job.id, attempt: 1, seq, choice: 0, tokenIds: [0], text: 'STALE' };
      await redis.xadd(outKey(job.shard), '*', 'e', JSON.stringify([forged]));
    }
    await pause(script.stepMs ?? 0);
  }
}

/** A token is a word, its id its place; detokenized it is its id. */
function answerTo(job: Job, task: Task): Unnumbered {
  const pieces = scriptOf(job).pieces ?? [];
  switch (task.kind) {
    case 'tokenize':
      return {
        type: 'tokens',
        tokenIds: [...pieces.keys()],
        contextTokens: 100_000,
        ...(task.tellTexts && { texts: pieces }),
      };
    case 'detokenize':
      return { type: 'text', text: pieces.join(' ') };
    case 'embed': {
      const vector = Buffer.from(Float32Array.from(VECTOR.slice(0, task.dimensions)).buffer).toString('base64');
      const vectors = promptsOf(job).map(() => vector);
      return { type: 'embeddings', first: 0, dimensions: task.dimensions ?? VECTOR.length, vectors };
    }
  }
}

function pause(ms: number): Promise<void> {
  return ms > 0 ? new Promise(resolve => setTimeout(resolve, ms)) : Promise.resolve();
}
