/**
 * Broker: the Durable Object between the Worker and Redis, the only one that talks to it; a thin host over queue, tails, board and open jobs.
 * Every job that it put on the queue is relayed to its end or withdrawn, over any number of its clients and of its own lives.
 */
import { DurableObject } from 'cloudflare:workers';
import { isFresh } from '../shared/batcher-card.ts';
import { ApiError, toApiError } from '../shared/errors.ts';
import { type Job, taskOf } from '../shared/job.ts';
import { cancelKey, DRAIN_LIFETIME_MS, drainKey, outKey } from '../shared/keys.ts';
import { isTerminal, type TokenEvent } from '../shared/token-event.ts';
import { parseTraceparent } from '../shared/trace-context.ts';
import {
  type AttachRequest,
  type CancelRequest,
  type CountsRequest,
  type DrainRequest,
  type MetricsRequest,
  REQUEST_ID_HEADER,
  type RelayRequest,
  type ReplyShape,
  type ResponseRequest,
  type ResponseShape,
  type ResumeRequest,
  type ScaleRequest,
} from './broker-call.ts';
import { CardBoard, findModel, loadOf, type ServedModel, servedModels } from './card-board.ts';
import type { Idempotency } from './delivery.ts';
import { Dispatcher, type Place } from './dispatcher.ts';
import { type Env, readSettings, type Settings } from './env.ts';
import { errorResponse } from './error-response.ts';
import { type FleetStanding, fleetStanding, queuedCount } from './fleet-standing.ts';
import { HeldRequests, heldFor } from './held-requests.ts';
import { JobQueue } from './job-queue.ts';
import { BrokerMetrics } from './metrics/broker-metrics.ts';
import { fleetEntries } from './metrics/fleet-entries.ts';
import type { OpenJob } from './open-job.ts';
import { OpenJobs } from './open-jobs.ts';
import { queueCounts } from './queue-counts.ts';
import { QueueEstimate } from './queue-estimate.ts';
import { RecordKeeper } from './record-keeper.ts';
import { RedisLink } from './redis.ts';
import { Relay } from './relay.ts';
import { type ReplyRecord, replyRecord, splitToken, streamToken } from './reply-record.ts';
import { encodeReply, MAX_REPLY_BYTES } from './response-cache.ts';
import { failedStream } from './responses/response-stream.ts';
import { responseNow } from './responses/response-writer.ts';
import { isSameText } from './same-text.ts';
import { kneeOf, type ScaleSignal, scaleSignal } from './scale-signal.ts';
import { isNoBatcher, onceServed } from './served-wait.ts';
import { SettlementQueue } from './settlement-queue.ts';
import { SteadyClock } from './steady-clock.ts';
import { StreamTail } from './stream-tail.ts';
import { refusedError, tenantObject } from './tenant-call.ts';
import { responseHead, writerFor } from './writer-for.ts';

interface Parts {
  commands: RedisLink;
  queue: JobQueue;
  board: CardBoard;
  keeper: RecordKeeper;
  jobs: OpenJobs;
  dispatcher: Dispatcher;
}

/** A job as it goes on the queue, and how it came. */
interface Task {
  job: Job;
  call: RelayRequest;
  isSureToFit: boolean;
  place: Place;
}

/** How a client came to a job that was there before it. */
interface Visit {
  signal: AbortSignal;
  /** Sequence number of the last event that it has seen. */
  seenSeq: number;
  headers?: Record<string, string>;
  /** It wants an answer, not to hear once more that there is none. */
  isRepeat?: boolean;
  /** It asked for the same, and shares the answer. */
  isSharer?: boolean;
  /** Another form of the reply than its request asked for. */
  reply?: ReplyShape;
  /** Lines ahead of everything. */
  preamble?: string;
}

const TICK_MS = 250;
const BUSY_RETRY_AFTER_SECONDS = 1;
/** Leases are renewed this often within their time. */
const RENEWALS = 3;
/** EventSource waits 3 to 5 seconds of its own. */
const RECONNECT_LINE = 'retry: 1000\n';
/** How long a job may take from its idempotency key to the queue. */
const HOLDER_PATIENCE_MS = 2_000;
const HOLDER_PAUSE_MS = 50;
const CANCELLED = 'The request was cancelled.';

const ADOPTION_RETRY_MS = 500;
/** Of what is known of the batchers when a request is refused for want of one: a flood of such requests costs one look at Redis in this time. */
const RECHECK_AGE_MS = 50;

export class Broker extends DurableObject<Env> {
  readonly #settings: Settings;
  readonly #tails = new Map<string, StreamTail>();
  readonly #estimate = new QueueEstimate();
  /** Of all that is timed about open jobs. */
  readonly #clock = new SteadyClock();
  readonly #settlements: SettlementQueue;
  readonly #held = new HeldRequests();
  readonly #redisUp: Record<string, boolean> = {};
  #metrics = new BrokerMetrics('none');
  #parts: Parts | undefined;
  #shard: string | undefined;
  #adoption: Promise<void> | undefined;
  #ticker: ReturnType<typeof setInterval> | undefined;
  #isTicking = false;
  #renewedAt = 0;

  constructor(state: DurableObjectState, env: Env) {
    super(state, env);
    this.#settings = readSettings(env);
    this.#settlements = new SettlementQueue({
      settler: tenant => tenantObject(env, tenant),
      onTrouble: message => log({ event: 'settlement_trouble', cause: message }),
    });
  }

  override async fetch(request: Request): Promise<Response> {
    try {
      const url = new URL(request.url);
      if (this.#shard === undefined) this.#begin(url.searchParams.get('shard') ?? undefined);
      this.#adopt();
      switch (url.pathname) {
        case '/relay':
          return await this.#relay(await request.json(), request.signal);
        case '/attach':
          return await this.#attach(await request.json(), request.signal);
        case '/resume':
          return await this.#resume(await request.json(), request.signal);
        case '/response':
          return await this.#response(await request.json(), request.signal);
        case '/cancel':
          return await this.#cancel(await request.json());
        case '/models':
          return Response.json(servedModels(await this.#open().board.cards(), Date.now()));
        case '/batchers':
          return Response.json(await this.#open().board.cards());
        case '/queues':
          return Response.json(await queueCounts(await this.#open().board.cards(), this.#open().queue));
        case '/drain':
          return await this.#drain(await request.json());
        case '/counts':
          return this.#takeCounts(await request.json());
        case '/metrics':
          return await this.#tellMetrics(await request.json());
        case '/held':
          return Response.json(this.#held.counts);
        case '/scale':
          return await this.#tellScale(await request.json());
        case '/ready':
          return await this.#ready();
        default:
          throw new ApiError('not_found', 'The broker has no such call.');
      }
    } catch (thrown) {
      const error = toApiError(thrown);
      if (error.status >= 500 && error.cause !== undefined) {
        const [requestId, traceparent] = [request.headers.get(REQUEST_ID_HEADER), request.headers.get('traceparent')];
        log({ event: 'request_failed', requestId, traceId: traceIdOf(traceparent), code: error.code, cause: String(error.cause) });
      }
      return errorResponse(error);
    }
  }

  /** Its name comes with its first call. */
  #begin(shard: string | undefined): void {
    this.#shard = shard;
    if (shard !== undefined) this.#metrics = new BrokerMetrics(shard);
  }

  #takeCounts({ entries }: CountsRequest): Response {
    this.#metrics.takeOver(entries);
    return new Response(null, { status: 204 });
  }

  async #tellMetrics({ held }: MetricsRequest): Promise<Response> {
    const { jobs, board, queue } = this.#open();
    // Whatever Redis cannot tell now is left out.
    const standing = held && (await fleetStanding(board, queue).catch(() => undefined));
    const fleet = standing === undefined ? [] : fleetEntries(standing, model => this.#signal(standing, { model, held: held! }));
    const relays = [...jobs.values()].flatMap(job => [...job.listeners]);
    const own = this.#metrics.entries({
      openRequests: jobs.size,
      openStreams: relays.length,
      heldRequests: this.#held.count,
      bufferedBytes: relays.reduce((sum, relay) => sum + relay.bufferedBytes, 0),
      redisUp: this.#redisUp,
    });
    return Response.json([...own, ...fleet]);
  }

  async #tellScale(asked: ScaleRequest): Promise<Response> {
    const { board, queue } = this.#open();
    return Response.json(this.#signal(await fleetStanding(board, queue, asked.model), asked));
  }

  #signal(standing: FleetStanding, { model, held }: ScaleRequest): ScaleSignal {
    const { defaultModel, knee, scaleTargetPercent, scaleQueueMs } = this.#settings;
    const heldCount = heldFor(model, held, defaultModel);
    return scaleSignal(
      { model, cards: standing.cards, queuedCount: queuedCount(standing, model), heldCount, now: Date.now() },
      { knee: kneeOf(knee, model), targetShare: scaleTargetPercent / 100, queueMs: scaleQueueMs },
    );
  }

  async #ready(): Promise<Response> {
    const { commands, board } = this.#open();
    await commands.run(client => client.ping());
    const models = servedModels(await board.cards(), Date.now());
    if (models.length === 0) throw new ApiError('no_batcher', 'No batcher is serving.', { retryAfterSeconds: BUSY_RETRY_AFTER_SECONDS });
    return Response.json({ status: 'ready', models: models.map(model => model.name) });
  }

  /** The card of the batcher that is asked to drain; it reads the request with its next heartbeat. */
  async #drain({ batcherId }: DrainRequest): Promise<Response> {
    const { commands, board } = this.#open();
    const card = (await board.cards()).find(one => one.batcherId === batcherId);
    if (card === undefined || !isFresh(card, Date.now())) throw new ApiError('not_found', 'There is no such batcher.');
    await commands.run(client => client.set(drainKey(batcherId), String(card.startedAt), 'PX', DRAIN_LIFETIME_MS));
    return Response.json(card);
  }

  /** A job that is to be done; the reservation that its Worker made is settled here, whatever comes of it. */
  async #relay(call: RelayRequest, signal: AbortSignal): Promise<Response> {
    const { tenant, id: reservation, model } = call.job;
    let next: Response | Task;
    try {
      next = await this.#prepare(call, signal);
    } catch (error) {
      this.#settleNothing(tenant, reservation, model);
      throw error;
    }
    if (!(next instanceof Response)) return await this.#submit(next, signal);
    this.#settleNothing(tenant, reservation, model);
    return next;
  }

  /** What is to be put on the queue; or the reply of a job that is there already, for an idempotency key that was given twice. */
  async #prepare(call: RelayRequest, signal: AbortSignal): Promise<Response | Task> {
    const { jobs, keeper } = this.#open();
    if (jobs.size + this.#held.count >= this.#settings.maxOpenCount) {
      throw new ApiError('queue_full', 'Too many requests are open. Try again shortly.', { retryAfterSeconds: BUSY_RETRY_AFTER_SECONDS });
    }
    const model = await this.#servedModel(call.job, signal);
    const isSureToFit =
      call.isPromptUncertain !== true && call.promptTokensBound + Math.max(1, call.job.stopping.maxTokens ?? 1) <= model.contextTokens;
    const job: Job = { ...call.job, model: model.name };
    const { idempotency } = call.delivery;
    if (idempotency !== undefined) {
      const { isCoalesced: isSharer = false } = idempotency;
      const visit = { signal, seenSeq: -1, headers: isSharer ? COALESCED : REPLAYED, isSharer, isRepeat: true };
      const joined = await this.#joinHolder(idempotency, job, visit);
      if (joined !== undefined) return joined;
    }
    try {
      return { job, call, isSureToFit, place: await this.#place(job, call) };
    } catch (error) {
      if (idempotency !== undefined) await keeper.release(idempotency.digest, job.id).catch(() => undefined);
      throw error;
    }
  }

  /** The reply of the job that answers an idempotency key; undefined when that is for this job to do. */
  async #joinHolder({ digest, bodyDigest }: Idempotency, job: Job, visit: Visit): Promise<Response | undefined> {
    const { keeper } = this.#open();
    const own = { id: job.id, shard: job.shard, bodyDigest };
    let awaited = { id: '', until: 0 };
    for (;;) {
      const holder = await keeper.claim(digest, own);
      if (holder.id === own.id) return undefined;
      if (holder.bodyDigest !== bodyDigest) throw conflict();
      const joined = await this.#join(holder.id, job.tenant, visit);
      if (joined !== undefined) return joined;
      // On its way to the queue, or dead: then one of those who waited takes its place.
      if (holder.id !== awaited.id) awaited = { id: holder.id, until: Date.now() + HOLDER_PATIENCE_MS };
      else if (Date.now() > awaited.until && (await keeper.takeOver(digest, holder.id, own))) return undefined;
      await new Promise(resolve => setTimeout(resolve, HOLDER_PAUSE_MS));
    }
  }

  async #servedModel({ model: asked, task }: Pick<Job, 'model' | 'task'>, signal: AbortSignal): Promise<ServedModel> {
    const { board } = this.#open();
    const { defaultModel, scaleFromZeroWaitMs } = this.#settings;
    const find = async (maxAgeMs?: number) =>
      findModel(await board.cards(maxAgeMs), asked, { task: taskOf({ task }), defaultModel, now: Date.now() });
    // A batcher that has just come is not turned away for what was known before.
    const findNow = () => find().catch(error => (isNoBatcher(error) ? find(RECHECK_AGE_MS) : Promise.reject(error)));
    return await this.#held.during(asked, () => onceServed(findNow, { maxMs: scaleFromZeroWaitMs, signal }));
  }

  async #place(job: Job, { promptTokens, weight, maxWaitMs }: RelayRequest): Promise<Place> {
    const { board, dispatcher } = this.#open();
    // Before the job is on the queue: its first event may be written a moment later.
    await this.#follow(job.shard);
    return await dispatcher.place({ job, promptTokens, weight, maxWaitMs }, await board.cards());
  }

  async #submit({ job, call, isSureToFit, place }: Task, signal: AbortSignal): Promise<Response> {
    const { queue, keeper, jobs } = this.#open();
    const record = replyRecord(job, {
      promptTokensBound: call.promptTokensBound,
      reply: call.reply,
      isSureToFit,
      isResumable: call.delivery.isResumable,
      reservation: call.job.id,
      reservedPromptTokens: call.promptTokens,
      idempotency: call.delivery.idempotency?.digest,
      isCoalesced: call.delivery.idempotency?.isCoalesced,
      batcherId: place.batcherId,
      isQuick: place.isQuick,
      weight: call.weight,
      expectedTokens: place.expectedTokens,
      cacheKey: call.cacheKey,
    });
    const now = this.#clock.now();
    const entry = jobs.open(record, now);
    this.#startTicking();
    const { reply } = record;
    const isAwaited = reply.kind !== 'response' || !reply.isBackground || reply.isStreamed;
    const relay = isAwaited ? this.#listen(entry, { signal, seenSeq: -1 }) : undefined;
    if (relay !== undefined) entry.join(relay, { isBehind: false, now });
    try {
      await Promise.all([keeper.put(record), queue.add(job, place)]);
    } catch (error) {
      // It may be on the queue nevertheless. A client with an idempotency key tries again, and finds it there.
      if (record.idempotency === undefined) void jobs.fail(entry, toApiError(error), this.#clock.now());
      else entry.dismiss(toApiError(error), this.#clock.now());
      throw error;
    }
    if (relay === undefined)
      return Response.json(responseNow(responseHead(record, reply as ResponseShape), []), { headers: { 'x-sluice-stream-id': record.id } });
    relay.begin(this.#clock.now());
    // The client may have gone while the job was on its way, before there was anything to take back.
    if (jobs.find(job.id, job.tenant) === undefined && !entry.order.isAnswered) void queue.withdraw(record, cancelled());
    return await relay.response;
  }

  /** The reply of the job that answers an idempotency key; 204 when none does. */
  async #attach(call: AttachRequest, signal: AbortSignal): Promise<Response> {
    const holder = await this.#open().keeper.claimed(call.idempotency.digest);
    if (holder === undefined) return NOBODY();
    if (holder.bodyDigest !== call.idempotency.bodyDigest) throw conflict();
    return (await this.#join(holder.id, call.tenant, { signal, seenSeq: -1, headers: REPLAYED, isRepeat: true })) ?? NOBODY();
  }

  /** The reply once more, from where its client stands. */
  async #resume(call: ResumeRequest, signal: AbortSignal): Promise<Response> {
    const token = call.token === undefined ? undefined : splitToken(call.token);
    const tenant = token?.tenant ?? call.tenant;
    if (tenant === undefined) throw noStream();
    if (token !== undefined) {
      const record = await this.#open().keeper.find(call.id, tenant);
      if (record === undefined || !isSameText(token.secret, record.token)) throw noStream();
    }
    const reply = await this.#join(call.id, tenant, { signal, seenSeq: call.seenSeq, preamble: RECONNECT_LINE });
    if (reply === undefined) throw noStream();
    return reply;
  }

  /** A response that is kept, in whatever form it is asked for now. */
  async #response({ id, tenant, stream, isCancelled }: ResponseRequest, signal: AbortSignal): Promise<Response> {
    const { commands, keeper } = this.#open();
    const record = await keeper.find(id, tenant);
    if (record?.reply.kind !== 'response' || !record.reply.isStored) throw noResponse(id);
    const { reply } = record;
    if (isCancelled === true) {
      if (!reply.isBackground) throw new ApiError('invalid_value', 'Only a response in the background can be cancelled.');
      await this.#cancel({ id, tenant });
    }
    const events = await keeper.events(id, 0);
    const last = events.at(-1);
    const head = responseHead(record, reply);
    if (stream !== undefined) {
      // Of one that has failed the status of this reply is no news.
      if (last?.type === 'error') return failedStream(head, stream.startingAfter, events);
      const visit = { signal, seenSeq: -1, reply: { ...reply, isStreamed: true, ...stream } };
      const streamed = await this.#join(id, tenant, visit);
      if (streamed === undefined) throw noResponse(id);
      return streamed;
    }
    const isStopped = !events.some(isTerminal) && (await commands.run(client => client.exists(cancelKey(id)))) === 1;
    // Its batcher has yet to say so.
    return Response.json(isStopped ? { ...responseNow(head, events), status: 'cancelled' } : responseNow(head, events));
  }

  async #cancel({ id, tenant }: CancelRequest): Promise<Response> {
    const { jobs, keeper, queue } = this.#open();
    const open = jobs.find(id, tenant);
    if (open !== undefined) {
      await jobs.fail(open, cancelled(), this.#clock.now());
      return Response.json({ id, object: 'stream', status: 'cancelled' });
    }
    const record = await keeper.find(id, tenant);
    if (record === undefined) throw noStream();
    const events = await keeper.events(id, 0);
    const isOver = events.some(isTerminal);
    if (!isOver) {
      this.#startTicking();
      keeper.end(record, false);
      await queue.withdraw(record, cancelled());
    }
    return Response.json({ id, object: 'stream', status: isOver ? 'finished' : 'cancelled' });
  }

  /** One more client for a job; undefined when there is none such, or no more. */
  async #join(id: string, tenant: string, visit: Visit): Promise<Response | undefined> {
    const { jobs, keeper, queue } = this.#open();
    const known = jobs.find(id, tenant);
    let record = known?.record;
    let events: TokenEvent[] = [];
    if (record === undefined) {
      record = await keeper.find(id, tenant);
      if (record === undefined) return undefined;
      // Before its record is read: what is written afterwards is heard.
      await this.#follow(record.shard);
      events = await keeper.events(id, 0);
    }
    if (known?.isUncertain !== false && events.length === 0) {
      if (!(await queue.has(record))) {
        if (known !== undefined && known.order.phase === 'waiting') void jobs.withdraw(known, cancelled());
        return undefined;
      }
      if (known !== undefined) known.isUncertain = false;
    }
    if (visit.isRepeat === true && events.at(-1)?.type === 'error') return undefined;
    const now = this.#clock.now();
    if (events.some(isTerminal)) return await this.#replay(record, events, visit);
    const entry = jobs.open(record, now);
    this.#startTicking();
    // Who came back once may come back again; who shares it came for the first time.
    if (visit.isSharer !== true) entry.isResumable = true;
    const relay = this.#listen(entry, visit);
    entry.join(relay, { isBehind: true, now });
    void keeper.announce([record]).catch(() => undefined);
    void jobs.ask(entry);
    await jobs.catchUp(entry, relay);
    relay.begin(this.#clock.now(), 'resumed');
    return await relay.response;
  }

  /** The reply of a job that is over. */
  #replay(record: ReplyRecord, events: readonly TokenEvent[], visit: Visit): Promise<Response> {
    const now = this.#clock.now();
    const relay = this.#relayFor(record, visit, () => undefined);
    for (const event of events) relay.take(event, now);
    return relay.response;
  }

  #listen(entry: OpenJob, visit: Visit): Relay {
    const { jobs } = this.#open();
    const relay = this.#relayFor(entry.record, visit, why => jobs.departed(entry, relay, why));
    visit.signal.addEventListener('abort', () => relay.abandon(), { once: true });
    if (visit.signal.aborted) relay.abandon();
    return relay;
  }

  #relayFor(record: ReplyRecord, visit: Visit, onGone: ConstructorParameters<typeof Relay>[0]['onGone']): Relay {
    const { isStreamed } = record.reply;
    return new Relay({
      writer: writerFor(visit.reply === undefined ? record : { ...record, reply: visit.reply }),
      isSureToFit: record.isSureToFit,
      maxBufferedBytes: this.#settings.maxBufferedBytes,
      headers: {
        'x-sluice-stream-id': record.id,
        ...(isStreamed && { 'x-sluice-stream-token': streamToken(record) }),
        ...visit.headers,
      },
      ...(isStreamed && visit.preamble !== undefined && { preamble: visit.preamble }),
      seenSeq: isStreamed ? visit.seenSeq : -1,
      onGone,
      now: this.#clock.now(),
    });
  }

  /** Connections are opened by the first call, and kept. */
  #open(): Parts {
    if (this.#parts === undefined) {
      const commands = this.#connect('commands');
      const queue = new JobQueue(commands);
      const board = new CardBoard(commands);
      const keeper = new RecordKeeper({ link: commands, brokerId: crypto.randomUUID(), graceMs: this.#settings.resumeGraceMs });
      const jobs = new OpenJobs({
        settings: this.#settings,
        queue,
        keeper,
        places: records => this.#places(records),
        onNews: (job, event) => this.#heard(job, event, Date.now()),
        onClosed: job => this.#closed(job),
        log,
        clock: () => this.#clock.now(),
      });
      const dispatcher = new Dispatcher({
        link: commands,
        cards: () => board.cards(),
        estimate: this.#estimate,
        settings: this.#settings,
        onTrouble: message => log({ event: 'dispatch_trouble', cause: message }),
      });
      this.#parts = { commands, queue, board, keeper, jobs, dispatcher };
    }
    return this.#parts;
  }

  #connect(purpose: string): RedisLink {
    return new RedisLink({
      url: this.#settings.redisUrl,
      name: `sluice-broker-${purpose}`,
      timeoutMs: this.#settings.redisTimeoutMs,
      onChange: (state, cause) => {
        this.#redisUp[purpose] = state === 'connected';
        if (state === 'lost') this.#metrics.redisLost(purpose);
        log({ event: `redis_${state}`, connection: purpose, cause });
      },
    });
  }

  /** Of this broker's shard for good; of another one, whose client came here, while it has open jobs here. */
  #follow(shard: string): Promise<void> {
    let tail = this.#tails.get(shard);
    if (tail === undefined) {
      const { commands, jobs } = this.#open();
      tail = new StreamTail({
        link: this.#connect('tail'),
        commands,
        key: outKey(shard),
        onEvents: events => jobs.hear(events),
        onInterrupted: () => jobs.askAll(shard),
        onTrouble: message => log({ event: 'tail_trouble', cause: message }),
      });
      this.#tails.set(shard, tail);
    }
    return tail.start();
  }

  /** Once a life: what the last one left open. */
  #adopt(): void {
    const shard = this.#shard;
    if (shard === undefined) return;
    this.#adoption ??= this.#adoptFrom(shard).catch(error => {
      // Nobody may ever call again, and there are clients that come back elsewhere.
      setTimeout(() => {
        this.#adoption = undefined;
        this.#adopt();
      }, ADOPTION_RETRY_MS);
      log({ event: 'adoption_failed', cause: String(error) });
    });
  }

  async #adoptFrom(shard: string): Promise<void> {
    const { keeper, jobs } = this.#open();
    const before = Date.now();
    const records = await keeper.openRecords(shard);
    if (records.length === 0) return;
    await this.#follow(shard);
    for (const record of records) if (record.submittedAt < before) jobs.adopt(record, this.#clock.now());
    this.#startTicking();
    log({ event: 'jobs_adopted', count: records.length });
  }

  async #places(records: readonly ReplyRecord[]): Promise<(string | undefined)[]> {
    const { queue, board } = this.#open();
    const [positions, cards] = await Promise.all([queue.positions(records), board.cards()]);
    const now = Date.now();
    return records.map(({ model, promptTokensBound, batcherId, isQuick }, index) => {
      const position = positions[index];
      if (position === undefined || isQuick === true) return undefined;
      const who = batcherId === undefined ? cards : cards.filter(card => card.batcherId === batcherId);
      // What waits in its own queue its position tells.
      const load = { ...loadOf(who, model, now), ...(batcherId !== undefined && { ownQueueCount: 0 }) };
      const waitMs = this.#estimate.waitMs({ model, position, promptTokensBound }, load);
      return `queued position=${position}${waitMs === undefined ? '' : ` eta_ms=${Math.round(waitMs)}`}`;
    });
  }

  #heard(job: OpenJob, event: TokenEvent, now: number): void {
    // Of a job that another broker has too, that one counts.
    if (job.record.shard === this.#shard) this.#metrics.heard(job, event, now);
    if (event.type === 'accepted') this.#accepted(job, event.promptTokens);
  }

  /** A batcher has counted the prompt. */
  #accepted(job: OpenJob, promptTokens: number): void {
    const { model, promptTokensBound, reservedPromptTokens, isQuick } = job.record;
    if (isQuick === true) return;
    this.#estimate.accepted(model, promptTokens, promptTokensBound);
    if (promptTokens > reservedPromptTokens) void this.#reserveMore(job, promptTokens);
  }

  /** The prompt has more tokens than were reserved for it: they are reserved now, or it goes no further. */
  async #reserveMore(job: OpenJob, promptTokens: number): Promise<void> {
    const { tenant, reservation } = job.record;
    // An object that cannot be reached counts them when it is told what was used.
    const refused = await tenantObject(this.env, tenant)
      .extend(reservation, promptTokens)
      .catch(() => undefined);
    if (refused !== undefined && job.order.phase !== 'over') void this.#open().jobs.fail(job, refusedError(refused), this.#clock.now());
  }

  #closed(job: OpenJob): void {
    const { tenant, reservation, model, isQuick } = job.record;
    if (job.order.isAnswered && isQuick !== true) this.#estimate.finished(model, job.bill.used);
    this.#settlements.settle(tenant, { id: reservation, model, used: job.bill.due });
    // Other brokers may have had clients for it too; it is told once.
    if (job.record.shard !== this.#shard) return;
    const { promptTokens, cachedTokens, completionTokens } = job.bill.used;
    this.#tellEnd(job, Date.now());
    void this.#open().dispatcher.settle(job.record, promptTokens - cachedTokens + completionTokens);
    if (job.order.isAnswered) void this.#keepReply(job.record);
  }

  #tellEnd({ record, order, bill, endCode }: OpenJob, now: number): void {
    const { id: jobId, tenant, model, submittedAt, traceparent } = record;
    const outcome = order.isAnswered ? 'finished' : (endCode ?? 'request_cancelled');
    this.#metrics.ended({ model, submittedAt, outcome, used: bill.used }, now);
    if (this.#settings.accessLog === 'off') return;
    log({ event: 'answer', jobId, traceId: traceIdOf(traceparent), tenant, model, outcome, ms: now - submittedAt, ...bill.used });
  }

  /** For later requests of the same content. That it is not kept is no failure. */
  async #keepReply({ id, tenant, model, cacheKey }: ReplyRecord): Promise<void> {
    if (cacheKey === undefined) return;
    try {
      const reply = encodeReply(model, await this.#open().keeper.events(id, 0));
      if (reply !== undefined && reply.length <= MAX_REPLY_BYTES) await tenantObject(this.env, tenant).keepReply(cacheKey, reply);
    } catch (error) {
      log({ event: 'reply_not_kept', cause: String(error) });
    }
  }

  #settleNothing(tenant: string, reservation: string, model: string): void {
    this.#settlements.settle(tenant, { id: reservation, model, used: undefined });
    this.#startTicking();
  }

  #startTicking(): void {
    this.#ticker ??= setInterval(() => void this.#tick(), TICK_MS);
  }

  /** Heartbeats, deadlines, and what is owed to Redis and to tenants. */
  async #tick(): Promise<void> {
    const { queue, keeper, jobs } = this.#open();
    if (jobs.size === 0 && queue.owedCount + keeper.owedCount + this.#settlements.owedCount === 0) {
      if (this.#ticker !== undefined) clearInterval(this.#ticker);
      this.#ticker = undefined;
      this.#stopForeignTails();
      return;
    }
    const now = this.#clock.now();
    jobs.bound(now);
    void jobs.beat();
    if (this.#isTicking) return;
    this.#isTicking = true;
    try {
      await this.#renew(now);
      await this.#settlements.flush();
      await queue.withdrawOwed();
      await keeper.flush();
      await jobs.upkeep(now);
      this.#stopForeignTails();
    } catch {
      // Redis is away: the next tick does it.
    } finally {
      this.#isTicking = false;
    }
  }

  async #renew(now: number): Promise<void> {
    if (now - this.#renewedAt < this.#settings.leaseMs / RENEWALS) return;
    this.#renewedAt = now;
    await this.#settlements.renew(
      [...this.#open().jobs.values()].map(({ record: { tenant, reservation, model }, bill }) => ({
        tenant,
        progress: { id: reservation, model, used: bill.used },
      })),
    );
  }

  #stopForeignTails(): void {
    if (this.#tails.size <= 1) return;
    const wanted = new Set([...this.#open().jobs.values()].map(job => job.record.shard));
    for (const [shard, tail] of this.#tails) {
      if (shard === this.#shard || wanted.has(shard)) continue;
      tail.stop();
      this.#tails.delete(shard);
    }
  }
}

const REPLAYED = { 'x-sluice-idempotent-replay': 'true' };
const COALESCED = { 'x-sluice-coalesced': 'true' };
const NOBODY = () => new Response(null, { status: 204 });

function conflict(): ApiError {
  return new ApiError('idempotency_conflict', 'This Idempotency-Key was used with another request body.', { param: 'idempotency-key' });
}

function cancelled(): ApiError {
  return new ApiError('request_cancelled', CANCELLED);
}

function noResponse(id: string): ApiError {
  return new ApiError('not_found', `There is no response '${id.slice(0, 128)}', or no more.`);
}

function noStream(): ApiError {
  return new ApiError('not_found', 'There is no such stream, or no more.');
}

function traceIdOf(traceparent: string | null | undefined): string | undefined {
  return parseTraceparent(traceparent)?.traceId;
}

function log(line: Record<string, unknown>): void {
  console.log(JSON.stringify({ at: new Date().toISOString(), ...line }));
}
