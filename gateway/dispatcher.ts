/**
 * Dispatcher: into which queue a job goes and where in it: to the batcher that holds the beginning of its prompt or to whoever is free
 * first, behind those whose turn is before its tenant's; or that it is refused. What is refused counts to nobody.
 */
import type { BatcherCard } from '../shared/batcher-card.ts';
import { isFresh } from '../shared/batcher-card.ts';
import { ApiError } from '../shared/errors.ts';
import { isQuick, type Job } from '../shared/job.ts';
import { ownQueue, QUICK_QUEUE, queueNameOf, SHARED_QUEUE } from '../shared/keys.ts';
import { PrefixDirectory } from '../shared/prefix-directory.ts';
import { Admission } from './admission.ts';
import { loadOf, type ModelLoad } from './card-board.ts';
import type { Settings } from './env.ts';
import { FairQueue } from './fair-queue.ts';
import { PlacedJobs } from './placed-jobs.ts';
import { PrefixFeed } from './prefix-feed.ts';
import { PrefixRouter } from './prefix-router.ts';
import type { QueueEstimate } from './queue-estimate.ts';
import type { RedisLink } from './redis.ts';
import type { ReplyRecord } from './reply-record.ts';

export interface DispatcherOptions {
  link: RedisLink;
  /** As they are now. */
  cards(): Promise<readonly BatcherCard[]>;
  estimate: QueueEstimate;
  settings: Pick<Settings, 'maxWaitMs' | 'maxQueuedTokens' | 'reservedTokens'>;
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

export interface Place {
  /** Whose own queue; undefined for the shared one. */
  batcherId: string | undefined;
  /** In the queue of what needs no row. */
  isQuick?: boolean;
  priority: number;
  /** What was counted to the tenant. */
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

  constructor({ link, cards, estimate, settings, onTrouble }: DispatcherOptions) {
    const directory = new PrefixDirectory();
    this.#admission = new Admission({ estimate, settings });
    this.#fair = new FairQueue(link, onTrouble);
    this.#feed = new PrefixFeed({ link, directory, onTrouble });
    this.#router = new PrefixRouter({ directory, estimate });
    this.#cards = cards;
  }

  /** Throws `queue_full`, or `dependency_unavailable`. `cards` may be of all models, and stale. */
  async place(petition: Petition, cards: readonly BatcherCard[]): Promise<Place> {
    const { job } = petition;
    if (isQuick(job)) return await this.#enterQuick(petition);
    const serving = cards.filter(card => card.model === job.model && card.state === 'serving' && isFresh(card, Date.now()));
    // One batcher alone is sent everything anyway.
    if (serving.length > 1) {
      await this.#feed.refresh(cards, Date.now());
      this.#feed.follow(this.#cards);
    }
    const route = this.#router.route(job, cards, Date.now());
    if (route !== undefined) {
      const own = serving.filter(card => card.batcherId === route.batcherId);
      // What waits there is counted in the queue itself.
      const load = { ...loadOf(own, job.model, Date.now()), ownQueueCount: 0 };
      const place = await this.#enter(petition, { serving, batcherId: route.batcherId, load });
      if (!(place instanceof Error)) {
        this.#router.sent(route, cards);
        return place;
      }
    }
    const place = await this.#enter(petition, { serving, batcherId: undefined, load: loadOf(cards, job.model, Date.now()) });
    if (place instanceof Error) throw place;
    return place;
  }

  /** The job is over, or was never put there: its tenant is held to what was computed for it. */
  settle(record: ReplyRecord, computedTokens: number): void {
    const { id, model, serviceClass, tenant, weight, expectedTokens: tokens, isQuick = false } = record;
    this.#placed.remove(model, id);
    const entrant = { id, model, serviceClass, tenant, weight, tokens, isQuick, queueName: queueNameOf(record) };
    // What needed no row was computed by nobody else either: it took what was expected.
    this.#fair.settle(entrant, isQuick ? tokens : computedTokens);
  }

  /** A queue by itself, in which work is measured by the text that it is about. */
  async #enterQuick({ job, promptTokens, weight }: Petition): Promise<Place> {
    const { id, model, tenant, serviceClass } = job;
    const tokens = Math.max(1, promptTokens);
    const entrant = {
      id,
      model,
      serviceClass,
      tenant,
      weight,
      tokens,
      queueName: QUICK_QUEUE,
      maxAheadCount: MAX_QUICK_AHEAD,
      isQuick: true,
    };
    const entry = await this.#fair.enter(entrant, [QUICK_QUEUE]);
    if (entry.outcome === 'refused') {
      throw new ApiError('queue_full', `${entry.aheadCount} requests of this kind wait before this one; ${MAX_QUICK_AHEAD} are the most.`, {
        retryAfterSeconds: QUICK_RETRY_AFTER_SECONDS,
      });
    }
    return { batcherId: undefined, isQuick: true, priority: entry.priority, expectedTokens: tokens };
  }

  async #enter(
    { job, promptTokens, weight, maxWaitMs }: Petition,
    to: { serving: readonly BatcherCard[]; batcherId: string | undefined; load: ModelLoad },
  ): Promise<Place | Error> {
    const { id, model, tenant, serviceClass } = job;
    const tokens = this.#admission.expectedTokens(job, promptTokens);
    const applicant = { model, tokens, maxWaitMs, queued: this.#placed.mean(model) };
    const maxAheadCount = this.#admission.maxAheadCount(applicant, to.load);
    if (maxAheadCount < 0) return this.#admission.refusal(applicant, 0, to.load);
    const queueName = queueNameOf(to);
    const queueNames = [SHARED_QUEUE, ...to.serving.filter(card => card.ownQueueCount !== undefined).map(card => ownQueue(card.batcherId))];
    // Before it has its place: those that ask at the same time must know of it.
    this.#placed.add(model, id, { tokens, promptTokens });
    let isPlaced = false;
    try {
      const entry = await this.#fair.enter({ id, model, serviceClass, tenant, weight, tokens, queueName, maxAheadCount }, queueNames);
      if (entry.outcome === 'refused') return this.#admission.refusal(applicant, entry.aheadCount, to.load);
      isPlaced = true;
      return { batcherId: to.batcherId, priority: entry.priority, expectedTokens: tokens };
    } finally {
      if (!isPlaced) this.#placed.remove(model, id);
    }
  }
}
