/**
 * LostJobs: open jobs of which Redis has lost something with a fall back to an earlier state (a failover to a replica that lagged). What was told of
 * their answers is put back into their records, and they onto their queue, where they go on from there; one that cannot go on ends with an error.
 */
import { ApiError } from '../shared/errors.ts';
import type { Job } from '../shared/job.ts';
import { isBulky, type TokenEvent } from '../shared/token-event.ts';
import type { Idempotency } from './delivery.ts';
import { firstPriority } from './fair-queue.ts';
import type { JobQueue } from './job-queue.ts';
import type { OpenJob } from './open-job.ts';
import type { OpenJobs } from './open-jobs.ts';
import type { RecordKeeper } from './record-keeper.ts';
import { keptInput } from './responses/response-input.ts';

export interface LostJobsOptions {
  jobs: OpenJobs;
  keeper: RecordKeeper;
  queue: JobQueue;
  /** The broker's: others look after theirs. */
  shard: string;
  log(line: Record<string, unknown>): void;
}

/** What it takes to put a job on the queue once more. */
export interface Original {
  job: Job;
  /** Its claim to an idempotency key. */
  idempotency: Idempotency | undefined;
}

interface Kept extends Original {
  /** All that were told, from the first. */
  events: TokenEvent[];
  bytes: number;
}

/** Of one open job. */
interface Search {
  nextAt: number;
  /** Looks in a row that did not find it on its queue. */
  missedCount: number;
  returnCount: number;
}

/** A job without news for so long is looked for. */
const SILENT_MS = 2_000;
/** Between two looks at a job that is there; one that is not is looked for again soon. */
const LOOK_MS = 10_000;
const SECOND_LOOK_MS = 1_000;
/** One may fall between a job's removal and the news of its end. */
const LOOKS = 2;
const LOOKS_AT_ONCE = 1_000;
/** What takes a job away again and again is no failover. */
const MAX_RETURNS = 3;
/** Prompts and events, of all jobs. Those beyond cannot be put back. */
const MAX_KEPT_BYTES = 32 * 1024 * 1024;
/** Of an event, and of one log-probability: about what they take. */
const EVENT_BYTES = 256;
const LOGPROB_BYTES = 256;

const LOST = 'The request was lost when the queue fell back to an earlier state. Send it again.';

export class LostJobs {
  readonly #options: LostJobsOptions;
  readonly #kept = new Map<string, Kept>();
  #keptBytes = 0;
  readonly #searches = new WeakMap<OpenJob, Search>();
  /** Redis was away: it may have come back as it was before. */
  #isAlarmed = false;

  constructor(options: LostJobsOptions) {
    this.#options = options;
  }

  /** To be forgotten when it is over. */
  keep(entry: OpenJob, original: Original): void {
    const bytes = entry.record.promptTokensBound;
    if (this.#keptBytes + bytes > MAX_KEPT_BYTES) return;
    this.#kept.set(entry.id, { ...original, events: [], bytes });
    this.#keptBytes += bytes;
  }

  /** An event of it was told, each in its turn. */
  told(event: TokenEvent): void {
    const kept = this.#kept.get(event.id);
    if (kept === undefined) return;
    const bytes = bytesOf(event);
    if (isBulky(event) || this.#keptBytes + bytes > MAX_KEPT_BYTES) {
      this.forget(event.id);
      return;
    }
    kept.events.push(event);
    kept.bytes += bytes;
    this.#keptBytes += bytes;
  }

  /** Whether this says what was told in its place, word for word. */
  isTold(event: TokenEvent): boolean {
    const told = this.#kept.get(event.id)?.events[event.seq];
    return told !== undefined && JSON.stringify({ ...told, attempt: 0 }) === JSON.stringify({ ...event, attempt: 0 });
  }

  forget(id: string): void {
    this.#keptBytes -= this.#kept.get(id)?.bytes ?? 0;
    this.#kept.delete(id);
  }

  /** Whatever is open is looked for. */
  alarm(): void {
    this.#isAlarmed = true;
  }

  /** Throws when Redis is away. */
  async look(now: number): Promise<void> {
    const due = this.#due(now);
    if (due.length === 0) return;
    const { queue, keeper } = this.#options;
    const [areQueued, counts] = await Promise.all([
      queue.areThere(due.map(({ entry }) => entry.record)),
      keeper.eventCounts(due.map(({ entry }) => entry.id)),
    ]);
    for (const [index, { entry, search }] of due.entries()) {
      search.missedCount = areQueued[index] === true ? 0 : search.missedCount + 1;
      search.nextAt = now + (search.missedCount === 0 ? LOOK_MS : SECOND_LOOK_MS);
      const recordedCount = counts[index];
      if (recordedCount === undefined) continue;
      if (search.missedCount >= LOOKS) await this.#recover(entry, search, { recordedCount, now });
      // Its batcher goes on at the end of the record, and so does the next, should that be gone.
      else if (search.missedCount === 0) await this.#mend(entry, recordedCount, entry.order.attempt);
    }
  }

  #due(now: number): { entry: OpenJob; search: Search }[] {
    const due: { entry: OpenJob; search: Search }[] = [];
    const isAlarmed = this.#isAlarmed;
    this.#isAlarmed = false;
    for (const entry of this.#options.jobs.values()) {
      // Whether one came onto the queue at all its client asks when it comes again.
      if (entry.record.shard !== this.#options.shard || entry.isUncertain) continue;
      let search = this.#searches.get(entry);
      const isSuspect = isAlarmed || (search?.missedCount ?? 0) > 0;
      if (!isSuspect && entry.order.silenceMs(now) < SILENT_MS) continue;
      search ??= { nextAt: now, missedCount: 0, returnCount: 0 };
      this.#searches.set(entry, search);
      if (!isAlarmed && now < search.nextAt) continue;
      due.push({ entry, search });
      if (due.length < LOOKS_AT_ONCE) continue;
      this.#isAlarmed = isAlarmed;
      break;
    }
    return due;
  }

  /** Whether all that was told is in its record. */
  async #mend(entry: OpenJob, recordedCount: number, attempt: number): Promise<boolean> {
    const { nextSeq } = entry.order;
    if (recordedCount >= nextSeq) return true;
    const events = this.#kept.get(entry.id)?.events;
    if (events === undefined || events.length < nextSeq) return false;
    this.#options.log({ event: 'record_restored', jobId: entry.id, count: nextSeq - recordedCount });
    return await this.#options.keeper.restore(entry.id, { events, heldCount: recordedCount, attempt });
  }

  async #recover(entry: OpenJob, search: Search, { recordedCount, now }: { recordedCount: number; now: number }): Promise<void> {
    const { jobs, keeper, queue, log } = this.#options;
    // Gone from its queue because it has ended, perhaps.
    await jobs.ask(entry);
    if (jobs.find(entry.id, entry.record.tenant) !== entry) return;
    const original = this.#kept.get(entry.id);
    // Should a batcher still have it, the next attempt fences that off.
    const attempt = Math.max(1, entry.order.attempt, await keeper.owner(entry.id));
    const isReturned = original !== undefined && search.returnCount < MAX_RETURNS && (await this.#mend(entry, recordedCount, attempt + 1));
    log({ event: 'job_lost', jobId: entry.id, isReturned });
    if (!isReturned) {
      void jobs.fail(entry, new ApiError('generation_failed', LOST), now);
      return;
    }
    search.returnCount += 1;
    search.missedCount = 0;
    const { job, idempotency } = original;
    const { batcherId, isQuick = false } = entry.record;
    if (idempotency !== undefined) {
      await keeper.claim(idempotency.digest, { id: entry.id, shard: job.shard, bodyDigest: idempotency.bodyDigest });
    }
    await keeper.put(entry.record, keptInput(entry.record, job));
    // It has had its turn, so it does not wait for another.
    await queue.putBack({ ...job, earlierAttempts: attempt }, { batcherId, isQuick, priority: firstPriority(job.serviceClass) });
  }
}

function bytesOf(event: TokenEvent): number {
  if (event.type === 'echo') return EVENT_BYTES + 2 * event.text.length + LOGPROB_BYTES * (event.tokens?.length ?? 0);
  if (event.type !== 'delta') return EVENT_BYTES;
  const logprobCount = event.logprobs?.reduce((sum, { top }) => sum + 1 + top.length, 0) ?? 0;
  return EVENT_BYTES + 2 * event.text.length + LOGPROB_BYTES * logprobCount;
}
