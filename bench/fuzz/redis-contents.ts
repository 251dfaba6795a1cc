/**
 * RedisContents: anything at all in the place of jobs, events, records, cards and prefixes, as another version, another program or a mishap would
 * leave it. Whatever is read, the product goes on: it answers the next request as ever, and what it cannot read it leaves or fails alone.
 */
import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { connectionOptions } from '../../batcher/redis.ts';
import { parseCard } from '../../shared/batcher-card.ts';
import {
  BATCHER_CARDS,
  cancelKey,
  drainKey,
  fenceKey,
  generationKey,
  idempotencyKey,
  listenerKey,
  openJobsKey,
  outKey,
  ownQueue,
  ownQueuesKey,
  PREFIX_CHANGES,
  prefixesKey,
  queueKey,
  queuePrefix,
  replyKey,
  SHARED_QUEUE,
} from '../../shared/keys.ts';
import type { Stack } from '../stack.ts';
import type { Dice } from './dice.ts';
import { checkReply } from './reply-check.ts';
import { damaged, distorted, strangeText, strangeValue } from './strange-values.ts';
import type { LiveSurface } from './surface.ts';

const HANG_MS = 60_000;
/** The development key's. */
const TENANT = 'dev';
const LIFETIME_MS = 60_000;
/** With a job that has no end in its record: the gateway waits SLUICE_SILENCE_TIMEOUT_MS for it. */
const PATIENCE_MS = 3_000;
const JOB_GONE_MS = 30_000;
const POLL_MS = 20;

export const redisContents: LiveSurface = {
  what: 'jobs, events, records, cards and prefixes in Redis',
  async open(stack) {
    const redis = new Redis(connectionOptions(stack.redisUrl));
    const [json] = Object.values(await redis.hgetall(BATCHER_CARDS));
    const card = json === undefined ? undefined : parseCard(json);
    if (card === undefined) throw new Error('no batcher has a card');
    const queue = new Queue(SHARED_QUEUE, { connection: redis, prefix: queuePrefix(card.model) });
    const contents = new RedisContents({ stack, redis, queue, model: card.model, batcherId: card.batcherId, cardJson: json! });
    return { feed: dice => contents.feed(dice), close: () => contents.close() };
  },
};

interface Parts {
  stack: Stack;
  redis: Redis;
  queue: Queue;
  model: string;
  batcherId: string;
  cardJson: string;
}

class RedisContents {
  readonly #parts: Parts;
  readonly #shards = new Set<string>();
  #count = 0;
  /** By the input under way, for its fault. */
  #written: string[] = [];

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  async feed(dice: Dice): Promise<string> {
    const kinds = {
      'job on the queue': () => this.#badJob(dice),
      'events where brokers listen': () => this.#badEvents(dice),
      'events of a running request': () => this.#badRecordOfRunning(dice),
      'card of a batcher': () => this.#badCard(dice),
      prefixes: () => this.#badPrefixes(dice),
      'record of a reply': () => this.#badReply(dice),
      'idempotency key': () => this.#badClaim(dice),
      'flags and fences': () => this.#badMarks(dice),
    };
    const kind = dice.pick(Object.keys(kinds) as (keyof typeof kinds)[]);
    this.#written = [];
    try {
      return await kinds[kind]();
    } catch (error) {
      throw new Error(`${kind}: ${(error as Error).message}; written: ${this.#written.join(' ').slice(0, 2_000)}`, { cause: error });
    }
  }

  async close(): Promise<void> {
    await this.#parts.queue.close();
    this.#parts.redis.disconnect();
  }

  /** In the shared queue or the batcher's own; it must leave the queue, since nobody else will take it away. */
  async #badJob(dice: Dice): Promise<string> {
    const { redis, model, batcherId } = this.#parts;
    const job = distorted(this.#someJob(), dice);
    const id = dice.chance(0.5) && isRecord(job) && typeof job.id === 'string' ? job.id.slice(0, 200) : this.#newId();
    if (id === '' || id.includes(':') || /^\d+$/.test(id)) return 'no id of a job';
    const queueName = dice.chance(0.7) ? SHARED_QUEUE : ownQueue(batcherId);
    const json = JSON.stringify(job) ?? '';
    const data = dice.chance(0.8) ? json : damaged(Buffer.from(json), dice).toString();
    this.#written.push(data);
    const key = `${queuePrefix(model)}:${queueName}:${id}`;
    await redis.hset(key, {
      ...{ name: 'generate', data, opts: dice.chance(0.9) ? '{"attempts":100,"removeOnComplete":true}' : strangeText(dice, 100) },
      ...{ timestamp: Date.now(), delay: 0, priority: 1 },
    });
    await redis.zadd(queueKey(model, queueName, 'prioritized'), dice.pick([1, 2 ** 32, 1e15]), id);
    await redis.zadd(queueKey(model, queueName, 'marker'), 0, '0');
    const giveUpAt = Date.now() + JOB_GONE_MS;
    while (Date.now() < giveUpAt) {
      if ((await redis.exists(key)) === 0) return 'job taken off the queue';
      // One that asks for much runs long.
      await redis.set(cancelKey(isRecord(job) && typeof job.id === 'string' ? job.id : id), '1', 'PX', LIFETIME_MS);
      await sleep(POLL_MS);
    }
    throw new Error(`a job stays on the queue: ${String(data).slice(0, 500)}`);
  }

  /** Where brokers listen. */
  async #badEvents(dice: Dice): Promise<string> {
    await this.#goodRequest();
    for (const shard of this.#shards) {
      await this.#parts.redis.xadd(outKey(shard), '*', dice.pick(['e', 'x']), this.#spoiled([someEvent(dice, this.#newId())], dice));
    }
    return await this.#goodRequest();
  }

  /** Events of a request that runs: it may fail, and not hang, and nobody else with it. */
  async #badRecordOfRunning(dice: Dice): Promise<string> {
    const { redis, stack } = this.#parts;
    const body = {
      model: 'default',
      stream: true,
      max_tokens: 24,
      temperature: 0,
      ignore_eos: true,
      messages: [{ role: 'user', content: 'Count.' }],
    };
    const response = await fetch(`${stack.target.baseUrl}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${stack.target.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(HANG_MS),
    });
    const id = response.headers.get('x-sluice-stream-id') ?? '';
    for (const shard of this.#shards) {
      const event = distorted({ ...someEvent(dice, id), seq: dice.between(1, 20), attempt: dice.pick([0, 1, 2]) }, dice);
      const entry = JSON.stringify([isRecord(event) ? { ...event, id } : event]);
      this.#written.push(entry);
      await redis.xadd(outKey(shard), '*', 'e', entry);
    }
    const text = await response.text();
    if (!text.endsWith('\n\n')) throw new Error(`a stream that ends with ${JSON.stringify(text.slice(-100))}`);
    await this.#goodRequest();
    return text.includes('data: {"error"') ? 'that request failed alone' : 'answered';
  }

  async #badCard(dice: Dice): Promise<string> {
    const { redis, batcherId, cardJson } = this.#parts;
    const card = this.#spoiled(JSON.parse(cardJson), dice);
    const field = dice.pick([batcherId, this.#newId(), '', strangeText(dice, 50)]);
    await redis.hset(BATCHER_CARDS, field, card);
    if (dice.chance(0.2)) await redis.sadd(ownQueuesKey(this.#parts.model), strangeText(dice, 50));
    // The board is read twice a second.
    await sleep(dice.pick([0, 600]));
    const response = await this.#ask({});
    const outcome = (await checkReply(response, this.#parts.stack.target.apiKey)).outcome;
    if (field !== batcherId) await redis.hdel(BATCHER_CARDS, field);
    else await redis.hset(BATCHER_CARDS, batcherId, JSON.stringify({ ...JSON.parse(cardJson), writtenAt: Date.now() }));
    await sleep(600);
    return outcome;
  }

  async #badPrefixes(dice: Dice): Promise<string> {
    const { redis, batcherId } = this.#parts;
    const update = { version: 1, batcherId, epoch: Date.now(), seq: dice.below(3), added: 'AAAAAAAAAAA', tokens: [16], evicted: '' };
    await redis.xadd(PREFIX_CHANGES, '*', dice.pick(['e', 'x']), this.#spoiled(update, dice));
    await redis.hset(prefixesKey(batcherId), dice.pick(['head', 'AAAAAAAAAAA', strangeText(dice, 30)]), strangeText(dice, 100));
    return await this.#goodRequest();
  }

  /** What a client that comes back is answered from. */
  async #badReply(dice: Dice): Promise<string> {
    const { redis, stack } = this.#parts;
    const id = `chatcmpl-${this.#newId()}`;
    const record = {
      ...{
        id,
        tenant: TENANT,
        model: this.#parts.model,
        shard: [...this.#shards][0] ?? '0',
        submittedAt: Date.now(),
        promptCount: 1,
        choiceCount: 1,
      },
      ...{
        wantsLogprobs: false,
        promptTokensBound: 10,
        reply: { kind: dice.pick(['chat', 'completion']), isStreamed: true, includeUsage: false },
      },
      ...{
        isSureToFit: true,
        isResumable: true,
        token: 'x'.repeat(24),
        reservation: id,
        reservedPromptTokens: 1,
        serviceClass: 'default',
        weight: 1,
      },
      expectedTokens: 1,
    };
    const json = dice.chance(0.3) ? JSON.stringify(record) : this.#spoiled(record, dice);
    await redis.set(replyKey(id, TENANT), json, 'PX', LIFETIME_MS);
    const count = dice.below(4);
    for (let seq = 0; seq < count; seq++) {
      const isLast = seq === count - 1;
      const event = { ...(isLast ? FINISH : seq === 0 ? { type: 'accepted', promptTokens: 3 } : someEvent(dice, id)), id, attempt: 1, seq };
      const entry = dice.chance(0.6) ? JSON.stringify(event) : this.#spoiled(event, dice);
      await redis.xadd(generationKey(id), `${seq + 1}-0`, 'e', entry);
    }
    await redis.pexpire(generationKey(id), LIFETIME_MS);
    if (dice.chance(0.3)) await redis.hset(openJobsKey([...this.#shards][0] ?? '0'), id, dice.chance(0.5) ? TENANT : strangeText(dice, 20));
    const response = await fetch(`${stack.target.baseUrl}/streams/${id}`, {
      method: dice.chance(0.9) ? 'GET' : 'DELETE',
      headers: { authorization: `Bearer ${stack.target.apiKey}`, 'last-event-id': String(dice.below(3)) },
      signal: AbortSignal.timeout(PATIENCE_MS),
    }).catch(ifOutOfPatience);
    // What is left of an answer that cannot be read is no answer: an error in words, in the stream or before it.
    const text = await response?.text().catch(ifOutOfPatience);
    if (response === undefined || text === undefined) return 'waits for events that nobody writes';
    if (response.status >= 500 && !text.includes('"generation_failed"')) throw new Error(`${response.status}: ${text.slice(0, 300)}`);
    await this.#goodRequest();
    return response.status < 400 ? 'answered' : `refused (${response.status})`;
  }

  /** Who answers an idempotency key. */
  async #badClaim(dice: Dice): Promise<string> {
    const key = this.#newId();
    const digest = createHash('sha256').update(`${TENANT}\n${key}`).digest('hex');
    const claim = { id: 'chatcmpl-x', shard: '0', bodyDigest: 'x' };
    await this.#parts.redis.set(idempotencyKey(digest), this.#spoiled(claim, dice), 'PX', LIFETIME_MS);
    return (await checkReply(await this.#ask({ 'idempotency-key': key }), this.#parts.stack.target.apiKey)).outcome;
  }

  /** Flags and fences, with anything in them. */
  async #badMarks(dice: Dice): Promise<string> {
    const { redis, batcherId } = this.#parts;
    const id = this.#newId();
    const text = strangeText(dice, 200);
    this.#written.push(text);
    await redis.set(dice.pick([cancelKey(id), fenceKey(id), listenerKey(id)]), text, 'PX', LIFETIME_MS);
    await redis.set(drainKey(batcherId), text, 'PX', LIFETIME_MS);
    const outcome = await this.#goodRequest();
    await redis.del(drainKey(batcherId));
    return outcome;
  }

  /** The product is as well as ever. */
  async #goodRequest(): Promise<string> {
    const response = await this.#ask({});
    const id = response.headers.get('x-sluice-stream-id');
    const { outcome, status } = await checkReply(response, this.#parts.stack.target.apiKey);
    if (status !== 200) throw new Error(`a good request is answered with ${status}`);
    if (id !== null && this.#shards.size === 0) {
      const event = await this.#parts.redis.get(replyKey(id, TENANT));
      if (event !== null) this.#shards.add((JSON.parse(event) as { shard: string }).shard);
    }
    return outcome;
  }

  #ask(headers: Record<string, string>): Promise<Response> {
    const { stack } = this.#parts;
    return fetch(`${stack.target.baseUrl}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${stack.target.apiKey}`, 'content-type': 'application/json', ...headers },
      body: JSON.stringify({ model: 'default', max_tokens: 1, temperature: 0, messages: [{ role: 'user', content: 'Hello' }] }),
      signal: AbortSignal.timeout(HANG_MS),
    });
  }

  #someJob(): unknown {
    return {
      ...{ version: 1, id: this.#newId(), model: this.#parts.model, tenant: TENANT, shard: '0', choiceCount: 1, serviceClass: 'default' },
      ...{
        prompt: { kind: 'chat', messages: [{ role: 'user', content: 'Hello' }] },
        sampling: { temperature: 0, topLogprobs: 2, seed: 3 },
      },
      ...{
        stopping: { maxTokens: 2, stop: ['x'] },
        submittedAt: Date.now(),
        morePrompts: [{ kind: 'tokens', tokenIds: [1, 2] }],
        echo: 'scored',
      },
    };
  }

  /** As JSON, with something in it that does not belong there, or as JSON no more. */
  #spoiled(value: unknown, dice: Dice): string {
    const text = dice.chance(0.7)
      ? (JSON.stringify(distorted(value, dice)) ?? '')
      : damaged(Buffer.from(JSON.stringify(value)), dice).toString();
    this.#written.push(text);
    return text;
  }

  #newId(): string {
    this.#count += 1;
    return `fuzz-${process.pid}-${this.#count}`;
  }
}

const FINISH = {
  type: 'finish',
  usage: { promptTokens: 3, completionTokens: 1, cachedTokens: 0 },
  timings: { queueMs: 1, prefillMs: 1, ttftMs: 1, decodeTokensPerSecond: 1 },
};

function someEvent(dice: Dice, id: string): Record<string, unknown> {
  const logprobs = [{ token: 'a', tokenId: 1, logprob: -0.5, bytes: [97], top: [] }];
  const head = { id, attempt: 1, seq: dice.below(3) };
  return dice.pick<Record<string, unknown>>([
    { ...head, type: 'accepted', promptTokens: 3 },
    { ...head, type: 'delta', choice: 0, tokenIds: [5], text: 'a', logprobs, finishReason: 'stop' },
    { ...head, type: 'echo', prompt: 0, tokenCount: 1, text: 'a', tokens: logprobs },
    { ...head, type: 'tokens', tokenIds: [5], texts: ['a'], contextTokens: 9 },
    { ...head, type: 'text', text: 'a' },
    { ...head, type: 'embeddings', first: 0, dimensions: 1, vectors: ['AACAPw=='] },
    { ...head, ...FINISH },
    { ...head, type: 'error', code: 'generation_failed', message: 'm' },
    { ...head, type: 'unheard-of', value: strangeValue(dice) },
  ]);
}

function ifOutOfPatience(error: Error): undefined {
  if (error.name !== 'TimeoutError') throw error;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
