/**
 * Dispatcher: puts jobs on queues: on that of the batcher that holds the beginning of its prompt or of whoever is free first, behind those whose
 * turn is before its tenant's; or refuses them. What is refused counts to nobody.
 */
import { Admission, type AdmissionSettings } from '../shared/admission.ts';
import type { BatcherCard } from '../shared/batcher-card.ts';
import { isFresh } from '../shared/batcher-card.ts';
import { ApiError } from '../shared/errors.ts';
import { isQuick, type Job } from '../shared/job.ts';
import { ownQueue, QUICK_QUEUE, SHARED_QUEUE } from '../shared/keys.ts';
import { loadOf, type ModelLoad } from '../shared/model-load.ts';
import { PlacedJobs } from '../shared/placed-jobs.ts';
import { PrefixDirectory } from '../shared/prefix-directory.ts';
import type { QueueEstimate } from '../shared/queue-estimate.ts';
import { type Entrant, FairQueue } from './fair-queue.ts';
import { PrefixFeed } from './prefix-feed.ts';
import { PrefixRouter, type Route } from './prefix-router.ts';
import type { RedisLink } from './redis.ts';
import type { ReplyRecord } from './reply-record.ts';

export interface DispatcherOptions {
  link: RedisLink;
  /** As they are now. */
  cards(): Promise<readonly BatcherCard[]>;
  estimate: QueueEstimate;
  settings: AdmissionSettings;
  onTrouble(message: string): void;
}

/** A job that asks for a place. */
export interface Petition {
  job: Job;
  /** Of its prompts, estimated. */
  promptTokens: number;
  /** The tenant's. */
  weight: number;
  maxWaitMs: number | undefined;
}

/** Where a job may go. */
export interface Place {
  /** To the batcher that holds the beginning of its prompt, into its own queue; undefined for another queue. */
  route: Route | undefined;
  /** Into the queue of what needs no row. */
  isQuick: boolean;
  /** What is counted to the tenant. */
  expectedTokens: number;
}

/** Some seconds of a batcher's time. */
const MAX_QUICK_AHEAD = 1_000;
const QUICK_RETRY_AFTER_SECONDS = 1;

export class Dispatcher {
  readonly #admission: Admission;
  readonly #fair: FairQueue;
  readonly #feed: PrefixFeed;
  readonly #router: PrefixRouter;
  readonly #cards: DispatcherOptions['cards'];
  /** Of this broker: what is known of the jobs that wait. */
  readonly #placed = new PlacedJobs();
  /** Jobs on their way to a queue, and what is to be done should they get there. */
  readonly #entering = new Map<string, { settle?(): void }>();

  constructor({ link, cards, estimate, settings, onTrouble }: DispatcherOptions) {
    const directory = new PrefixDirectory();
    this.#admission = new Admission({ estimate, settings });
    this.#fair = new FairQueue(link, onTrouble);
    this.#feed = new PrefixFeed({ link, directory, onTrouble });
    this.#router = new PrefixRouter({ directory, estimate });
    this.#cards = cards;
  }

  /** Where the job may go, the best first. `cards` may be of all models, and stale. Throws `queue_full` where it is nowhere begun in time. */
  async places(petition: Petition, cards: readonly BatcherCard[]): Promise<Place[]> {
    const { job, promptTokens } = petition;
    if (isQuick(job)) return [{ route: undefined, isQuick: true, expectedTokens: Math.max(1, promptTokens) }];
    // One batcher alone is sent everything anyway.
    if (servingOf(job.model, cards).length > 1) {
      await this.#feed.refresh(cards, Date.now());
      this.#feed.follow(this.#cards);
    }
    const shared = { route: undefined, isQuick: false, expectedTokens: this.#admission.expectedTokens(job, promptTokens) };
    const route = this.#router.route(job, cards, Date.now());
    const places = route === undefined ? [shared] : [{ ...shared, route }, shared];
    const inTime = places.filter(place => this.#terms(petition, place, cards).maxAheadCount >= 0);
    if (inTime.length > 0) return inTime;
    const { applicant, load } = this.#terms(petition, shared, cards);
    throw this.#admission.refusal(applicant, 0, load);
  }

  /**
   * Puts the job there, unless it is refused: the error says why. Who asks must be ready for its events. Throws `dependency_unavailable`; the
   * job may then be there nevertheless.
   */
  async enter(petition: Petition, place: Place, cards: readonly BatcherCard[]): Promise<ApiError | undefined> {
    const { id } = petition.job;
    const entering: { settle?(): void } = {};
    this.#entering.set(id, entering);
    try {
      const refusal = place.isQuick ? await this.#enterQuick(petition, place) : await this.#enter(petition, place, cards);
      if (refusal === undefined) entering.settle?.();
      return refusal;
    } finally {
      this.#entering.delete(id);
    }
  }

  /** The job is over: its tenant is held to what was computed for it. */
  settle(record: ReplyRecord, computedTokens: number): void {
    const entering = this.#entering.get(record.id);
    // Its client has left while it was on its way: what is not counted yet is not to be given back.
    if (entering === undefined) this.#settle(record, computedTokens);
    else entering.settle = () => this.#settle(record, computedTokens);
  }

  #settle({ id, model, serviceClass, tenant, weight, expectedTokens: tokens, isQuick = false }: ReplyRecord, computedTokens: number): void {
    this.#placed.remove(model, id);
    // What needed no row was computed by nobody else either: it took what was expected.
    this.#fair.settle({ model, serviceClass, tenant, weight, tokens, isQuick }, isQuick ? tokens : computedTokens);
  }

  /** A queue by itself, in which work is measured by the text that it is about. */
  async #enterQuick(petition: Petition, { expectedTokens }: Place): Promise<ApiError | undefined> {
    const entrant = { ...entrantOf(petition), tokens: expectedTokens, maxAheadCount: MAX_QUICK_AHEAD, isQuick: true };
    const entry = await this.#fair.enter(entrant, JSON.stringify(petition.job), [QUICK_QUEUE]);
    if (entry.outcome === 'entered') return undefined;
    return new ApiError('queue_full', `${entry.aheadCount} requests of this kind wait before this one; ${MAX_QUICK_AHEAD} are the most.`, {
      retryAfterSeconds: QUICK_RETRY_AFTER_SECONDS,
    });
  }

  async #enter(petition: Petition, place: Place, cards: readonly BatcherCard[]): Promise<ApiError | undefined> {
    const { route, expectedTokens: tokens } = place;
    const { job, promptTokens } = petition;
    const { id, model } = job;
    const { applicant, load, maxAheadCount } = this.#terms(petition, place, cards);
    const queueNames = [
      SHARED_QUEUE,
      ...servingOf(model, cards)
        .filter(card => card.ownQueueCount !== undefined)
        .map(card => ownQueue(card.batcherId)),
    ];
    // Before it has its place: those that ask at the same time must know of it.
    this.#placed.add(model, id, { tokens, promptTokens });
    let isPlaced = false;
    try {
      const entrant = { ...entrantOf(petition), tokens, maxAheadCount, batcherId: route?.batcherId };
      const entry = await this.#fair.enter(entrant, JSON.stringify(job), queueNames);
      if (entry.outcome === 'refused') return this.#admission.refusal(applicant, entry.aheadCount, load);
      isPlaced = true;
      if (route !== undefined) this.#router.sent(route, cards);
      return undefined;
    } finally {
      if (!isPlaced) this.#placed.remove(model, id);
    }
  }

  /** What is held against the job there: how many may stand before it, and what that comes from. */
  #terms({ job: { model }, maxWaitMs }: Petition, { route, expectedTokens: tokens }: Place, cards: readonly BatcherCard[]) {
    const load = loadFor(model, route?.batcherId, cards);
    const applicant = { model, tokens, maxWaitMs, queued: this.#placed.mean(model) };
    return { load, applicant, maxAheadCount: this.#admission.maxAheadCount(applicant, load) };
  }
}

function servingOf(model: string, cards: readonly BatcherCard[]): BatcherCard[] {
  return cards.filter(card => card.model === model && card.state === 'serving' && isFresh(card, Date.now()));
}

function loadFor(model: string, batcherId: string | undefined, cards: readonly BatcherCard[]): ModelLoad {
  if (batcherId === undefined) return loadOf(cards, model, Date.now());
  const own = cards.filter(card => card.batcherId === batcherId);
  // What waits there is counted in the queue itself.
  return { ...loadOf(own, model, Date.now()), ownQueueCount: 0 };
}

function entrantOf({ job, weight }: Petition): Pick<Entrant, 'id' | 'shard' | 'model' | 'tenant' | 'serviceClass' | 'weight'> {
  const { id, shard, model, tenant, serviceClass } = job;
  return { id, shard, model, tenant, serviceClass, weight };
}
