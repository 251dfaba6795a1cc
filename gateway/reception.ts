/**
 * Reception: how a request becomes a job of a broker: let in by its tenant's object, or answered with what that has kept; given its place in a
 * queue; and put there. Whatever was reserved for a request that becomes no job is given back.
 */
import type { BatcherCard } from '../shared/batcher-card.ts';
import { ApiError, toApiError } from '../shared/errors.ts';
import { isQuick, type Job, promptsOf, taskOf } from '../shared/job.ts';
import type { RelayRequest } from './broker-call.ts';
import { cachedReply } from './cached-reply.ts';
import { type CardBoard, findModel, modelMeant, type ServedModel } from './card-board.ts';
import { DOOR_HEADER, doorOf } from './closed-doors.ts';
import type { Idempotency } from './delivery.ts';
import type { Dispatcher, Petition, Place } from './dispatcher.ts';
import type { Settings } from './env.ts';
import { errorResponse } from './error-response.ts';
import type { HeldRequests } from './held-requests.ts';
import type { JobQueue } from './job-queue.ts';
import { limitHeaders } from './limit-headers.ts';
import type { LostJobs } from './lost-jobs.ts';
import type { OpenJob } from './open-job.ts';
import { cancelled, type OpenJobs } from './open-jobs.ts';
import type { RecordKeeper } from './record-keeper.ts';
import { type ReplyRecord, replyRecord } from './reply-record.ts';
import { cacheKeyOf } from './response-cache.ts';
import { acceptedResponse } from './responses/kept-responses.ts';
import { keptInput } from './responses/response-input.ts';
import { isNoBatcher, onceServed } from './served-wait.ts';
import { callObject, refusedError } from './tenant-call.ts';
import type { TenantDesk } from './tenant-desk.ts';
import { conflict, type Visit, type Visits } from './visits.ts';

export interface ReceptionOptions {
  settings: Pick<Settings, 'maxOpenCount' | 'defaultModel' | 'scaleFromZeroWaitMs'>;
  desk: TenantDesk;
  board: CardBoard;
  dispatcher: Dispatcher;
  keeper: RecordKeeper;
  queue: JobQueue;
  jobs: OpenJobs;
  visits: Visits;
  /** Where it is kept what it takes to put a job back that Redis loses. */
  lost: LostJobs;
  /** Where those are counted that wait for a batcher to come. */
  held: HeldRequests;
  /** Events of that shard's jobs are heard from now on. */
  follow(shard: string): Promise<void>;
  /** There is something to look after. */
  onWork(): void;
  clock(): number;
}

/** A request that was let in, with a reservation. */
export interface Admitted {
  job: Job;
  /** The tenant's. */
  weight: number;
  /** The limits have cut its answer short. */
  isBounded: boolean;
  /** Of its reply, whatever becomes of it. */
  headers: Record<string, string>;
}

/** A job as it goes on the queue. */
interface Task {
  petition: Petition;
  isSureToFit: boolean;
  /** Where it may go, the best first. */
  places: Place[];
  cards: readonly BatcherCard[];
}

const BUSY_RETRY_AFTER_SECONDS = 1;
/** How long a job may take from its idempotency key to the queue. */
const HOLDER_PATIENCE_MS = 2_000;
const HOLDER_PAUSE_MS = 50;
/** Of what is known of the batchers when a request is refused for want of one: a flood of such requests costs one look at Redis in this time. */
const RECHECK_AGE_MS = 50;
const REPLAYED = { 'x-sluice-idempotent-replay': 'true' };
const COALESCED = { 'x-sluice-coalesced': 'true' };

export class Reception {
  readonly #options: ReceptionOptions;
  constructor(options: ReceptionOptions) {
    this.#options = options;
  }

  /** The reply, when the request is refused by the limits or has an answer already. Throws `dependency_unavailable`. */
  async letIn(call: RelayRequest): Promise<Admitted | Response> {
    const { job, keyId, isBackground } = call;
    // What no model computes counts as a request and as no tokens.
    const promptTokens = isQuick(job) ? 0 : call.promptTokens;
    const { maxTokens, minTokens = 0 } = job.stopping;
    const choiceCount = promptsOf(job).length * job.choiceCount;
    const cacheKey = call.cache?.mayAnswer === true ? await this.#cacheKey(job, call.cache.content) : undefined;
    // Should it fail, something is to be given back.
    this.#options.onWork();
    const reply = await callObject(() =>
      this.#options.desk.admit(job.tenant, job.model, {
        request: { id: job.id, keyId, promptTokens, maxTokens, minTokens, choiceCount, isBackground },
        cacheKey,
      }),
    );
    const headers = reply.standing === undefined ? {} : limitHeaders(reply.standing);
    switch (reply.outcome) {
      case 'refused': {
        const door = doorOf(reply);
        return errorResponse(refusedError(reply.error), { ...headers, ...(door !== undefined && { [DOOR_HEADER]: JSON.stringify(door) }) });
      }
      case 'answered':
        return await cachedReply(reply.reply, call, headers);
      case 'admitted': {
        const { weight, maxTokens: bound } = reply;
        if (bound === undefined) return { job, weight, isBounded: false, headers };
        return { job: { ...job, stopping: { ...job.stopping, maxTokens: bound } }, weight, isBounded: true, headers };
      }
    }
  }

  /** Its reply. The reservation is settled here, whatever comes of it. */
  async take(call: RelayRequest, admitted: Admitted, signal: AbortSignal): Promise<Response> {
    const { tenant, id, model } = call.job;
    const giveBack = () => this.#options.desk.settle(tenant, { id, model, used: undefined });
    let next: Response | Task;
    try {
      next = await this.#prepare(call, admitted, signal);
    } catch (error) {
      giveBack();
      throw error;
    }
    if (!(next instanceof Response)) return await this.#submit(call, admitted, next, signal);
    giveBack();
    return next;
  }

  /** An answer is that of a model, whatever it was called by. */
  async #cacheKey(job: Job, content: string): Promise<string | undefined> {
    const cards = await this.#options.board.cards().catch(() => []);
    const { defaultModel } = this.#options.settings;
    const model = modelMeant(cards, job.model, { task: taskOf(job), defaultModel, now: Date.now() });
    return model === undefined ? undefined : cacheKeyOf(model, content);
  }

  /** What is to be put on the queue; or the reply of a job that is there already, for an idempotency key that was given twice. */
  async #prepare(call: RelayRequest, admitted: Admitted, signal: AbortSignal): Promise<Response | Task> {
    const { jobs, keeper, held, settings } = this.#options;
    if (jobs.size + held.count >= settings.maxOpenCount) {
      throw new ApiError('queue_full', 'Too many requests are open. Try again shortly.', { retryAfterSeconds: BUSY_RETRY_AFTER_SECONDS });
    }
    const model = await this.#servedModel(admitted.job, signal);
    const job: Job = { ...admitted.job, model: model.name };
    const isSureToFit =
      call.isPromptUncertain !== true && call.promptTokensBound + Math.max(1, job.stopping.maxTokens ?? 1) <= model.contextTokens;
    const { idempotency } = call.delivery;
    if (idempotency !== undefined) {
      const { isCoalesced: isSharer = false } = idempotency;
      const headers = { ...admitted.headers, ...(isSharer ? COALESCED : REPLAYED) };
      const joined = await this.#joinHolder(idempotency, job, { signal, seenSeq: -1, headers, isSharer, isRepeat: true });
      if (joined !== undefined) return joined;
    }
    try {
      return { isSureToFit, ...(await this.#petition(job, call, admitted.weight)) };
    } catch (error) {
      if (idempotency !== undefined) await keeper.release(idempotency.digest, job.id).catch(() => undefined);
      throw error;
    }
  }

  /** The reply of the job that answers an idempotency key; undefined when that is for this job to do. */
  async #joinHolder({ digest, bodyDigest }: Idempotency, job: Job, visit: Visit): Promise<Response | undefined> {
    const { keeper, visits } = this.#options;
    const own = { id: job.id, shard: job.shard, bodyDigest };
    let awaited = { id: '', until: 0 };
    for (;;) {
      const holder = await keeper.claim(digest, own);
      if (holder.id === own.id) return undefined;
      if (holder.bodyDigest !== bodyDigest) throw conflict();
      const joined = await visits.join(holder.id, job.tenant, visit);
      if (joined !== undefined) return joined;
      // On its way to the queue, or dead: then one of those who waited takes its place.
      if (holder.id !== awaited.id) awaited = { id: holder.id, until: Date.now() + HOLDER_PATIENCE_MS };
      else if (Date.now() > awaited.until && (await keeper.takeOver(digest, holder.id, own))) return undefined;
      await new Promise(resolve => setTimeout(resolve, HOLDER_PAUSE_MS));
    }
  }

  async #servedModel(job: Job, signal: AbortSignal): Promise<ServedModel> {
    const { board, held, settings } = this.#options;
    const { defaultModel, scaleFromZeroWaitMs } = settings;
    const find = async (maxAgeMs?: number) =>
      findModel(await board.cards(maxAgeMs), job.model, { task: taskOf(job), defaultModel, now: Date.now() });
    // A batcher that has just come is not turned away for what was known before.
    const findNow = () => find().catch(error => (isNoBatcher(error) ? find(RECHECK_AGE_MS) : Promise.reject(error)));
    return await held.during(job.model, () => onceServed(findNow, { maxMs: scaleFromZeroWaitMs, signal }));
  }

  async #petition(job: Job, { promptTokens, maxWaitMs }: RelayRequest, weight: number): Promise<Omit<Task, 'isSureToFit'>> {
    const { board, dispatcher, follow } = this.#options;
    // Before the job is on the queue: its first event may be written a moment later.
    await follow(job.shard);
    const cards = await board.cards();
    const petition = { job, promptTokens, weight, maxWaitMs };
    return { petition, cards, places: await dispatcher.places(petition, cards) };
  }

  async #submit(call: RelayRequest, { weight, isBounded, headers }: Admitted, task: Task, signal: AbortSignal): Promise<Response> {
    const { desk, queue, jobs, lost, visits, clock } = this.#options;
    const { petition, isSureToFit, places } = task;
    const { job } = petition;
    const record = replyRecord(job, {
      promptTokensBound: call.promptTokensBound,
      reply: call.reply,
      isSureToFit,
      isResumable: call.delivery.isResumable,
      reservation: call.job.id,
      reservedPromptTokens: call.promptTokens,
      idempotency: call.delivery.idempotency?.digest,
      isCoalesced: call.delivery.idempotency?.isCoalesced,
      weight,
      ...asRecorded(places[0]!),
      // What the limits have cut short is nobody else's answer.
      cacheKey: call.cache === undefined || isBounded ? undefined : cacheKeyOf(job.model, call.cache.content),
    });
    const now = clock();
    const entry = jobs.open(record, now);
    lost.keep(entry, { job, idempotency: call.delivery.idempotency });
    this.#options.onWork();
    const { reply } = record;
    const relay =
      reply.kind === 'response' && reply.isBackground && !reply.isStreamed
        ? undefined
        : visits.listen(entry, { signal, seenSeq: -1, headers });
    if (relay !== undefined) entry.join(relay, { isBehind: false, now });
    let refusal: ApiError | undefined;
    try {
      refusal = await this.#enter(entry, task);
    } catch (error) {
      // It may be on the queue nevertheless. A client with an idempotency key tries again, and finds it there.
      if (record.idempotency === undefined) void jobs.fail(entry, toApiError(error), clock());
      else entry.dismiss(toApiError(error), clock());
      throw error;
    }
    if (refusal !== undefined) {
      desk.settle(job.tenant, { id: call.job.id, model: job.model, used: undefined });
      lost.forget(job.id);
      await jobs.refuse(entry, refusal, now);
      throw refusal;
    }
    if (relay === undefined) return acceptedResponse(record, headers);
    relay.begin(clock());
    // The client may have gone while the job was on its way, before there was anything to take back.
    if (jobs.find(job.id, job.tenant) === undefined && !entry.order.isAnswered) void queue.withdraw(entry.record, cancelled());
    return await relay.response;
  }

  /** Puts the job where it may go; the refusal when that is nowhere. Its record comes first: who finds the job finds that too. */
  async #enter(entry: OpenJob, { petition, places, cards }: Task): Promise<ApiError | undefined> {
    const { keeper, dispatcher } = this.#options;
    const input = keptInput(entry.record, petition.job);
    let refusal: ApiError | undefined;
    for (const place of places) {
      entry.record = { ...entry.record, ...asRecorded(place) };
      [, refusal] = await Promise.all([keeper.put(entry.record, input), dispatcher.enter(petition, place, cards)]);
      if (refusal === undefined) return undefined;
    }
    return refusal;
  }
}

function asRecorded({ route, isQuick, expectedTokens }: Place): Pick<ReplyRecord, 'batcherId' | 'isQuick' | 'expectedTokens'> {
  return { batcherId: route?.batcherId, isQuick: isQuick || undefined, expectedTokens };
}
