/**
 * Broker: the Durable Object between the Worker and Redis, the only one that talks to it; a thin host over queue, tail, board and relays.
 * Every job that it put on the queue is relayed to its end or withdrawn.
 */
import { DurableObject } from 'cloudflare:workers';
import { ApiError, toApiError } from '../shared/errors.ts';
import type { Job } from '../shared/job.ts';
import { generationKey, outKey } from '../shared/keys.ts';
import { decodeEvents, type TokenEvent } from '../shared/token-event.ts';
import type { RelayRequest, ReplyShape } from './broker-call.ts';
import { CardBoard, findModel, servedModels } from './card-board.ts';
import { ChatBody } from './chat-body.ts';
import { ChatStream } from './chat-stream.ts';
import { type Env, readSettings, type Settings } from './env.ts';
import { errorResponse } from './error-response.ts';
import { JobQueue } from './job-queue.ts';
import { RedisLink } from './redis.ts';
import { Relay } from './relay.ts';
import type { ReplyWriter } from './reply-writer.ts';
import { StreamTail } from './stream-tail.ts';

interface OpenJob {
  job: Job;
  relay: Relay;
  /** Its record is being read. */
  isAsking: boolean;
  /** Something came while its record was being read. */
  isAskedAgain: boolean;
}

const TICK_MS = 250;
const BUSY_RETRY_AFTER_SECONDS = 1;

export class Broker extends DurableObject<Env> {
  readonly #settings: Settings;
  readonly #jobs = new Map<string, OpenJob>();
  #parts: { commands: RedisLink; queue: JobQueue; board: CardBoard } | undefined;
  #tail: StreamTail | undefined;
  #ticker: ReturnType<typeof setInterval> | undefined;
  #isTicking = false;

  constructor(state: DurableObjectState, env: Env) {
    super(state, env);
    this.#settings = readSettings(env);
  }

  override async fetch(request: Request): Promise<Response> {
    try {
      switch (new URL(request.url).pathname) {
        case '/relay':
          return await this.#relay(request);
        case '/models':
          return Response.json(servedModels(await this.#open().board.cards(), Date.now()));
        case '/ready':
          return await this.#ready();
        default:
          throw new ApiError('not_found', 'The broker has no such call.');
      }
    } catch (thrown) {
      const error = toApiError(thrown);
      if (error.status >= 500 && error.cause !== undefined) log({ event: 'request_failed', code: error.code, cause: String(error.cause) });
      return errorResponse(error);
    }
  }

  async #ready(): Promise<Response> {
    const { commands, board } = this.#open();
    await commands.run(client => client.ping());
    const models = servedModels(await board.cards(), Date.now());
    if (models.length === 0) throw new ApiError('no_batcher', 'No batcher is serving.', { retryAfterSeconds: BUSY_RETRY_AFTER_SECONDS });
    return Response.json({ status: 'ready', models: models.map(model => model.name) });
  }

  async #relay(request: Request): Promise<Response> {
    const call: RelayRequest = await request.json();
    const { queue, board } = this.#open();
    if (this.#jobs.size >= this.#settings.maxOpenCount) {
      throw new ApiError('queue_full', 'Too many requests are open. Try again shortly.', { retryAfterSeconds: BUSY_RETRY_AFTER_SECONDS });
    }
    const now = Date.now();
    const model = findModel(await board.cards(), call.job.model, { defaultModel: this.#settings.defaultModel, now });
    const job: Job = { ...call.job, model: model.name };
    // Before the job is on the queue: its first event may be written a moment later.
    await this.#follow(job.shard);
    const entry: OpenJob = {
      job,
      relay: new Relay({
        writer: writerFor(call.reply, job),
        isSureToFit: call.promptTokensBound + (job.stopping.maxTokens ?? 1) <= model.contextTokens,
        maxBufferedBytes: this.#settings.maxBufferedBytes,
        onAbandoned: why => this.#abandoned(job, why),
        now,
      }),
      isAsking: false,
      isAskedAgain: false,
    };
    this.#jobs.set(job.id, entry);
    this.#ticker ??= setInterval(() => void this.#tick(), TICK_MS);
    request.signal.addEventListener('abort', () => entry.relay.abandon(), { once: true });
    try {
      await queue.add(job);
    } catch (error) {
      this.#jobs.delete(job.id);
      throw error;
    }
    // The client may have gone while the job was on its way, before there was anything to take back.
    if (entry.relay.phase === 'over') this.#settle(entry, 'withdraw');
    else entry.relay.queued(Date.now());
    return await entry.relay.response;
  }

  /** Connections are opened by the first call, and kept. */
  #open(): { commands: RedisLink; queue: JobQueue; board: CardBoard } {
    if (this.#parts === undefined) {
      const commands = this.#connect('commands', false);
      this.#parts = { commands, queue: new JobQueue(commands), board: new CardBoard(commands) };
    }
    return this.#parts;
  }

  #connect(purpose: string, isBlocking: boolean): RedisLink {
    return new RedisLink({
      url: this.#settings.redisUrl,
      name: `sluice-broker-${purpose}`,
      timeoutMs: this.#settings.redisTimeoutMs,
      isBlocking,
      onChange: (state, cause) => log({ event: `redis_${state}`, connection: purpose, cause }),
    });
  }

  #follow(shard: string): Promise<void> {
    this.#tail ??= new StreamTail({
      link: this.#connect('tail', true),
      commands: this.#open().commands,
      key: outKey(shard),
      onEvents: events => this.#hear(events),
      onInterrupted: () => {
        for (const entry of this.#jobs.values()) void this.#ask(entry);
      },
      onTrouble: message => log({ event: 'tail_trouble', cause: message }),
    });
    return this.#tail.start();
  }

  /** Events of one read: each reply gets its share in one piece. */
  #hear(events: readonly TokenEvent[]): void {
    const now = Date.now();
    const touched = new Set<OpenJob>();
    for (const event of events) {
      const entry = this.#jobs.get(event.id);
      if (entry === undefined) continue;
      const verdict = entry.isAsking ? 'ask' : entry.relay.hear(event, now);
      if (verdict === 'ask') void this.#ask(entry);
      if (verdict === 'taken') touched.add(entry);
    }
    for (const entry of touched) this.#tell(entry, now);
  }

  #tell(entry: OpenJob, now: number): void {
    entry.relay.flush(now);
    if (entry.relay.phase === 'over') this.#settle(entry, 'done');
  }

  /** Reads a job's record from where its reply stands. One read at a time: what comes meanwhile is read after it. */
  async #ask(entry: OpenJob): Promise<void> {
    if (entry.isAsking) {
      entry.isAskedAgain = true;
      return;
    }
    entry.isAsking = true;
    try {
      do {
        entry.isAskedAgain = false;
        // The id of an entry is its sequence number plus one.
        const from = `${entry.relay.nextSeq + 1}-0`;
        const record = await this.#open().commands.run(client => client.xrange(generationKey(entry.job.id), from, '+'));
        const now = Date.now();
        entry.relay.learn(decodeEvents(`[${record.map(([, fields]) => fields[1]).join(',')}]`), now);
        this.#tell(entry, now);
      } while (entry.isAskedAgain && entry.relay.phase !== 'over');
    } catch {
      // Redis is away; the tail comes back with it and asks again.
    } finally {
      entry.isAsking = false;
    }
  }

  #abandoned(job: Job, why: 'left' | 'slow'): void {
    const entry = this.#jobs.get(job.id);
    if (entry === undefined) return;
    log({ event: 'client_gone', jobId: job.id, why });
    this.#settle(entry, 'withdraw');
  }

  #settle(entry: OpenJob, how: 'done' | 'withdraw'): void {
    this.#jobs.delete(entry.job.id);
    if (how === 'withdraw') void this.#open().queue.withdraw(entry.job);
  }

  /** Heartbeats, deadlines, and what is owed to Redis. */
  async #tick(): Promise<void> {
    const { queue } = this.#open();
    if (this.#jobs.size === 0 && queue.owedCount === 0) {
      if (this.#ticker !== undefined) clearInterval(this.#ticker);
      this.#ticker = undefined;
      return;
    }
    this.#expire(Date.now());
    if (this.#isTicking) return;
    this.#isTicking = true;
    try {
      await queue.withdrawOwed();
      await this.#beat();
    } finally {
      this.#isTicking = false;
    }
  }

  #expire(now: number): void {
    const { queueTimeoutMs, silenceTimeoutMs } = this.#settings;
    for (const entry of [...this.#jobs.values()]) {
      const isWaiting = entry.relay.phase === 'waiting';
      if (entry.relay.silenceMs(now) <= (isWaiting ? queueTimeoutMs : silenceTimeoutMs)) continue;
      const error = isWaiting
        ? new ApiError('no_batcher', `No batcher took the request within ${queueTimeoutMs} ms.`, {
            retryAfterSeconds: BUSY_RETRY_AFTER_SECONDS,
          })
        : new ApiError('generation_failed', `The batcher has been silent for ${silenceTimeoutMs} ms.`);
      entry.relay.fail(error, now);
      this.#settle(entry, 'withdraw');
    }
  }

  async #beat(): Promise<void> {
    const due = [...this.#jobs.values()].filter(entry => entry.relay.idleMs(Date.now()) >= this.#settings.heartbeatMs);
    if (due.length === 0) return;
    const waiting = due.filter(entry => entry.relay.phase === 'waiting');
    const places = new Map<OpenJob, number | undefined>();
    if (waiting.length > 0) {
      const positions = await this.#open()
        .queue.positions(waiting.map(entry => entry.job))
        .catch(() => []);
      for (const [index, entry] of waiting.entries()) places.set(entry, positions[index]);
    }
    const now = Date.now();
    for (const entry of due) entry.relay.beat(note(entry.relay.phase, places.get(entry)), now);
  }
}

function note(phase: Relay['phase'], position: number | undefined): string {
  if (phase !== 'waiting') return 'working';
  return position === undefined ? 'waiting' : `queued position=${position}`;
}

function writerFor(reply: ReplyShape, job: Job): ReplyWriter {
  const head = { id: job.id, created: Math.floor(job.submittedAt / 1000), model: job.model };
  const { choiceCount } = job;
  return reply.isStreamed
    ? new ChatStream({ head, choiceCount, includeUsage: reply.includeUsage })
    : new ChatBody({ head, choiceCount, wantsLogprobs: job.sampling.topLogprobs !== undefined });
}

function log(line: Record<string, unknown>): void {
  console.log(JSON.stringify({ at: new Date().toISOString(), ...line }));
}
