/**
 * Broker: the Durable Object between the Worker and Redis, the only one that talks to it; a thin host over links, queue, board and open jobs.
 * Every job that it put on the queue is relayed to its end or withdrawn, over any number of its clients and of its own lives.
 */
import { DurableObject } from 'cloudflare:workers';
import { isFresh } from '../shared/batcher-card.ts';
import { ApiError, toApiError } from '../shared/errors.ts';
import { DRAIN_LIFETIME_MS, drainKey } from '../shared/keys.ts';
import { loadOf } from '../shared/model-load.ts';
import { QueueEstimate } from '../shared/queue-estimate.ts';
import type { TokenEvent } from '../shared/token-event.ts';
import { type CountsRequest, type DrainRequest, type MetricsRequest, pathOf, type RelayRequest, type ScaleRequest } from './broker-call.ts';
import { BrokerJournal } from './broker-journal.ts';
import { BrokerLinks } from './broker-links.ts';
import { CardBoard, servedModels } from './card-board.ts';
import { Dispatcher } from './dispatcher.ts';
import { type Env, readSettings, type Settings } from './env.ts';
import { errorResponse } from './error-response.ts';
import { type FleetStanding, fleetStanding, queuedCount } from './fleet-standing.ts';
import { HeldRequests, heldFor } from './held-requests.ts';
import { JobQueue } from './job-queue.ts';
import { LostJobs } from './lost-jobs.ts';
import { fleetEntries } from './metrics/fleet-entries.ts';
import type { OpenJob } from './open-job.ts';
import { OpenJobs } from './open-jobs.ts';
import { orphanRecords } from './orphan-jobs.ts';
import { queueCounts } from './queue-counts.ts';
import { Reception } from './reception.ts';
import { RecordKeeper } from './record-keeper.ts';
import type { ReplyRecord } from './reply-record.ts';
import { encodeReply, MAX_REPLY_BYTES } from './response-cache.ts';
import { KeptResponses } from './responses/kept-responses.ts';
import { kneeOf, type ScaleSignal, scaleSignal } from './scale-signal.ts';
import { SteadyClock } from './steady-clock.ts';
import { refusedError, tenantObject } from './tenant-call.ts';
import { TenantDesk } from './tenant-desk.ts';
import { Visits } from './visits.ts';

const TICK_MS = 250;
const NO_BATCHER_RETRY_AFTER_SECONDS = 1;
/** Leases are renewed this often within their time. */
const RENEWALS = 3;
const ADOPTION_RETRY_MS = 500;

export class Broker extends DurableObject<Env> {
  readonly #settings: Settings;
  readonly #shard: string;
  readonly #journal: BrokerJournal;
  /** Of all that is timed about open jobs. */
  readonly #clock = new SteadyClock();
  readonly #estimate = new QueueEstimate();
  readonly #held = new HeldRequests();
  readonly #desk: TenantDesk;
  readonly #links: BrokerLinks;
  readonly #queue: JobQueue;
  readonly #board: CardBoard;
  readonly #keeper: RecordKeeper;
  readonly #dispatcher: Dispatcher;
  readonly #jobs: OpenJobs;
  readonly #lost: LostJobs;
  readonly #visits: Visits;
  readonly #responses: KeptResponses;
  readonly #reception: Reception;
  #ticker: ReturnType<typeof setInterval> | undefined;
  #isTicking = false;
  #renewedAt = 0;

  constructor(state: DurableObjectState, env: Env) {
    super(state, env);
    const settings = readSettings(env);
    this.#settings = settings;
    // Objects are found by the name of their shard.
    this.#shard = state.id.name!;
    this.#journal = new BrokerJournal(this.#shard, settings);
    const clock = () => this.#clock.now();
    const onWork = () => this.#startTicking();
    const follow = (shard: string) => this.#links.follow(shard);
    this.#desk = new TenantDesk({
      account: tenant => tenantObject(env, tenant),
      onTrouble: message => this.#journal.trouble('settlement_trouble', message),
    });
    this.#links = new BrokerLinks({
      settings,
      shard: this.#shard,
      onEvents: events => this.#jobs.hear(events),
      onInterrupted: shard => {
        this.#lost.alarm();
        this.#jobs.askAll(shard);
      },
      onChange: (connection, linkState, cause) => this.#journal.redisChanged(connection, linkState, cause),
      onTrouble: message => this.#journal.trouble('tail_trouble', message),
    });
    const link = this.#links.commands;
    const queue = new JobQueue(link);
    const board = new CardBoard(link);
    const keeper = new RecordKeeper({ link, brokerId: crypto.randomUUID(), graceMs: settings.resumeGraceMs });
    const jobs = new OpenJobs({
      settings,
      queue,
      keeper,
      places: records => this.#places(records),
      onNews: (job, event) => this.#heard(job, event, Date.now()),
      isTold: event => this.#lost.isTold(event),
      onClosed: job => this.#closed(job),
      log: line => this.#journal.write(line),
      clock,
    });
    const lost = new LostJobs({ jobs, keeper, queue, shard: this.#shard, log: line => this.#journal.write(line) });
    const dispatcher = new Dispatcher({
      link,
      cards: () => board.cards(),
      estimate: this.#estimate,
      settings,
      onTrouble: message => this.#journal.trouble('dispatch_trouble', message),
    });
    const visits = new Visits({ settings, jobs, keeper, queue, follow, onWork, clock });
    this.#queue = queue;
    this.#board = board;
    this.#keeper = keeper;
    this.#jobs = jobs;
    this.#lost = lost;
    this.#dispatcher = dispatcher;
    this.#visits = visits;
    this.#responses = new KeptResponses({ link, keeper, visits });
    this.#reception = new Reception({
      ...{ settings, desk: this.#desk, board, dispatcher, keeper, queue, jobs, lost, visits },
      ...{ held: this.#held, follow, onWork, clock },
    });
    this.#adopt();
  }

  override async fetch(request: Request): Promise<Response> {
    try {
      return await this.#answer(request);
    } catch (thrown) {
      return this.#failed(request, thrown);
    }
  }

  async #answer(request: Request): Promise<Response> {
    switch (pathOf(request)) {
      case '/relay':
        return await this.#relay(request);
      case '/attach':
        return await this.#visits.attach(await request.json(), request.signal);
      case '/resume':
        return await this.#visits.resume(await request.json(), request.signal);
      case '/response':
        return await this.#responses.tell(await request.json(), request.signal);
      case '/cancel':
        return await this.#visits.cancel(await request.json());
      case '/models':
        return Response.json(servedModels(await this.#board.cards(), Date.now()));
      case '/batchers':
        return Response.json(await this.#board.cards());
      case '/queues':
        return Response.json(await queueCounts(await this.#board.cards(), this.#queue));
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
  }

  #failed(request: Request, thrown: unknown, headers?: Record<string, string>): Response {
    const error = toApiError(thrown);
    if (error.status >= 500 && error.cause !== undefined) this.#journal.requestFailed(request.headers, error);
    return errorResponse(error, headers);
  }

  async #relay(request: Request): Promise<Response> {
    const call: RelayRequest = await request.json();
    const admitted = await this.#reception.letIn(call);
    if (admitted instanceof Response) return admitted;
    try {
      return await this.#reception.take(call, admitted, request.signal);
    } catch (thrown) {
      return this.#failed(request, thrown, admitted.headers);
    }
  }

  #takeCounts({ entries }: CountsRequest): Response {
    this.#journal.takeOver(entries);
    return new Response(null, { status: 204 });
  }

  async #tellMetrics({ held }: MetricsRequest): Promise<Response> {
    // Whatever Redis cannot tell now is left out.
    const standing = held && (await fleetStanding(this.#board, this.#queue).catch(() => undefined));
    const fleet = standing === undefined ? [] : fleetEntries(standing, model => this.#signal(standing, { model, held: held! }));
    const relays = [...this.#jobs.values()].flatMap(job => [...job.listeners]);
    const own = this.#journal.entries({
      openRequests: this.#jobs.size,
      openStreams: relays.length,
      heldRequests: this.#held.count,
      bufferedBytes: relays.reduce((sum, relay) => sum + relay.bufferedBytes, 0),
    });
    return Response.json([...own, ...fleet]);
  }

  async #tellScale(asked: ScaleRequest): Promise<Response> {
    return Response.json(this.#signal(await fleetStanding(this.#board, this.#queue, asked.model), asked));
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
    await this.#links.commands.run(client => client.ping());
    const models = servedModels(await this.#board.cards(), Date.now());
    if (models.length === 0) {
      throw new ApiError('no_batcher', 'No batcher is serving.', { retryAfterSeconds: NO_BATCHER_RETRY_AFTER_SECONDS });
    }
    return Response.json({ status: 'ready', models: models.map(model => model.name) });
  }

  /** The card of the batcher that is asked to drain; it reads the request with its next heartbeat. */
  async #drain({ batcherId }: DrainRequest): Promise<Response> {
    const card = (await this.#board.cards()).find(one => one.batcherId === batcherId);
    if (card === undefined || !isFresh(card, Date.now())) throw new ApiError('not_found', 'There is no such batcher.');
    await this.#links.commands.run(client => client.set(drainKey(batcherId), String(card.startedAt), 'PX', DRAIN_LIFETIME_MS));
    return Response.json(card);
  }

  /** Once a life: what the last one left open. Tried until it is done: nobody may ever call again, and there are clients that come back elsewhere. */
  #adopt(): void {
    this.#adoptOpen().catch(error => {
      this.#journal.trouble('adoption_failed', error);
      setTimeout(() => this.#adopt(), ADOPTION_RETRY_MS);
    });
  }

  async #adoptOpen(): Promise<void> {
    const before = Date.now();
    const records = await this.#leftRecords();
    if (records.length === 0) return;
    await this.#links.follow(this.#shard);
    for (const record of records) if (record.submittedAt < before) this.#jobs.adopt(record, this.#clock.now());
    this.#startTicking();
    this.#journal.write({ event: 'jobs_adopted', count: records.length });
  }

  /** Of jobs that are listed as open, and of those on the queues that are not, yet. */
  async #leftRecords(): Promise<ReplyRecord[]> {
    const listed = await this.#keeper.openRecords(this.#shard);
    const ids = new Set(listed.map(record => record.id));
    const models = new Set((await this.#board.cards()).map(card => card.model));
    const orphans = await orphanRecords(models, {
      ...{ link: this.#links.commands, keeper: this.#keeper, shard: this.#shard },
      isKnown: id => ids.has(id) || this.#jobs.has(id),
    });
    return [...listed, ...orphans];
  }

  async #places(records: readonly ReplyRecord[]): Promise<(string | undefined)[]> {
    const [positions, cards] = await Promise.all([this.#queue.positions(records), this.#board.cards()]);
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
    this.#lost.told(event);
    // Of a job that another broker has too, that one counts.
    if (job.record.shard === this.#shard) this.#journal.heard(job, event, now);
    if (event.type !== 'accepted') return;
    // A batcher has counted the prompt.
    const { model, promptTokensBound, reservedPromptTokens, isQuick } = job.record;
    if (isQuick === true) return;
    this.#estimate.accepted(model, event.promptTokens, promptTokensBound);
    if (event.promptTokens > reservedPromptTokens) void this.#reserveMore(job, event.promptTokens);
  }

  /** The prompt has more tokens than were reserved for it: they are reserved now, or it goes no further. */
  async #reserveMore(job: OpenJob, promptTokens: number): Promise<void> {
    const { tenant, reservation } = job.record;
    // An object that cannot be reached counts them when it is told what was used.
    const refused = await tenantObject(this.env, tenant)
      .extend(reservation, promptTokens)
      .catch(() => undefined);
    if (refused !== undefined && job.order.phase !== 'over') void this.#jobs.fail(job, refusedError(refused), this.#clock.now());
  }

  #closed(job: OpenJob): void {
    const { tenant, reservation, model, isQuick } = job.record;
    this.#lost.forget(job.id);
    if (job.order.isAnswered && isQuick !== true) this.#estimate.finished(model, job.bill.used);
    this.#desk.settle(tenant, { id: reservation, model, used: job.bill.due });
    // Other brokers may have had clients for it too; it is told once.
    if (job.record.shard !== this.#shard) return;
    const { promptTokens, cachedTokens, completionTokens } = job.bill.used;
    this.#journal.ended(job, Date.now());
    this.#dispatcher.settle(job.record, promptTokens - cachedTokens + completionTokens);
    if (job.order.isAnswered) void this.#keepReply(job.record);
  }

  /** For later requests of the same content. That it is not kept is no failure. */
  async #keepReply({ id, tenant, model, cacheKey }: ReplyRecord): Promise<void> {
    if (cacheKey === undefined) return;
    try {
      const reply = encodeReply(model, await this.#keeper.events(id, 0));
      if (reply !== undefined && reply.length <= MAX_REPLY_BYTES) await tenantObject(this.env, tenant).keepReply(cacheKey, reply);
    } catch (error) {
      this.#journal.trouble('reply_not_kept', error);
    }
  }

  #startTicking(): void {
    this.#ticker ??= setInterval(() => void this.#tick(), TICK_MS);
  }

  /** Heartbeats, deadlines, and what is owed to Redis and to tenants. */
  async #tick(): Promise<void> {
    if (this.#jobs.size === 0 && this.#queue.owedCount + this.#keeper.owedCount + this.#desk.owedCount === 0) {
      if (this.#ticker !== undefined) clearInterval(this.#ticker);
      this.#ticker = undefined;
      this.#stopForeignTails();
      return;
    }
    const now = this.#clock.now();
    this.#jobs.bound(now);
    void this.#jobs.beat();
    if (this.#isTicking) return;
    this.#isTicking = true;
    try {
      await this.#renew(now);
      await this.#desk.flush();
      await this.#queue.withdrawOwed();
      await this.#keeper.flush();
      await this.#jobs.upkeep(now);
      await this.#lost.look(now);
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
    await this.#desk.renew(
      [...this.#jobs.values()].map(({ record: { tenant, reservation, model }, bill }) => ({
        tenant,
        progress: { id: reservation, model, used: bill.used },
      })),
    );
  }

  #stopForeignTails(): void {
    this.#links.keepOnly(() => new Set([...this.#jobs.values()].map(job => job.record.shard)));
  }
}
