/**
 * OpenJobs: every job that this broker has not seen the end of, with the clients that wait for it. Each is brought to its end: by its
 * terminal event, by a bound on waiting, or because nobody is there for it any more.
 */
import { ApiError } from '../shared/errors.ts';
import type { TokenEvent } from '../shared/token-event.ts';
import type { Settings } from './env.ts';
import type { Ending, JobQueue } from './job-queue.ts';
import { OpenJob } from './open-job.ts';
import type { RecordKeeper } from './record-keeper.ts';
import type { Departure, Relay } from './relay.ts';
import type { ReplyRecord } from './reply-record.ts';

export interface OpenJobsOptions {
  settings: Pick<
    Settings,
    'queueTimeoutMs' | 'silenceTimeoutMs' | 'heartbeatMs' | 'resumeGraceMs' | 'leaseMs' | 'maxBufferedTotalBytes' | 'redisTimeoutMs'
  >;
  queue: JobQueue;
  keeper: RecordKeeper;
  /** The job waits: where, in words for its client. */
  places(jobs: readonly ReplyRecord[]): Promise<(string | undefined)[]>;
  /** An event that is its next. */
  onNews(job: OpenJob, event: TokenEvent): void;
  /** An event says what was told in its place, word for word. */
  isTold(event: TokenEvent): boolean;
  /** It is over for this broker; once a job. */
  onClosed(job: OpenJob): void;
  log(line: Record<string, unknown>): void;
  /** Milliseconds that only go on; all moments here are by it. */
  clock(): number;
}

const NO_BATCHER_RETRY_AFTER_SECONDS = 1;
/** A job without news: its events may have been trimmed before they were read. Doubled at each look that finds nothing. */
const PROBE_MS = 2_000;
const PROBE_MAX_MS = 30_000;
/** Clients are announced this often within the time that an announcement holds. */
const ANNOUNCEMENTS = 3;
/** Most answers begin sooner, and a piece for their wait would cost as much as a token. */
const FIRST_BEAT_MS = 500;
const CATCH_UP_PAUSE_MS = 100;

const LEFT: Ending = { code: 'request_cancelled', message: 'The client has left, so the request was cancelled.' };

export class OpenJobs {
  readonly #options: OpenJobsOptions;
  readonly #jobs = new Map<string, OpenJob>();
  #isBeating = false;

  constructor(options: OpenJobsOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#jobs.size;
  }

  values(): IterableIterator<OpenJob> {
    return this.#jobs.values();
  }

  has(id: string): boolean {
    return this.#jobs.has(id);
  }

  /** Of this tenant: to others it does not exist. */
  find(id: string, tenant: string): OpenJob | undefined {
    const job = this.#jobs.get(id);
    return job?.record.tenant === tenant ? job : undefined;
  }

  /** The one that is there already, should there be one. */
  open(record: ReplyRecord, now: number): OpenJob {
    let job = this.#jobs.get(record.id);
    if (job === undefined) {
      job = new OpenJob(record, now);
      this.#jobs.set(record.id, job);
    }
    return job;
  }

  /** A job that another life of this broker left open: somebody may come back for it. */
  adopt(record: ReplyRecord, now: number): void {
    if (this.#jobs.has(record.id)) return;
    const job = this.open(record, now);
    job.leftAt = now;
    job.isAdopted = true;
    void this.ask(job);
  }

  /** A client of it has gone. */
  departed(job: OpenJob, relay: Relay, why: Departure): void {
    job.leave(relay);
    this.#options.log({ event: 'client_gone', jobId: job.id, why });
    if (job.listeners.size > 0 || this.#jobs.get(job.id) !== job) return;
    // Whoever was cut off for reading too slowly did not mean to leave.
    if (job.isResumable || job.isBackground || why !== 'left') job.leftAt = this.#options.clock();
    else void this.withdraw(job, LEFT);
  }

  /** Brings a client that came later to where the others are. */
  async catchUp(job: OpenJob, relay: Relay): Promise<void> {
    const deadline = this.#options.clock() + this.#options.settings.redisTimeoutMs;
    while (relay.phase !== 'over') {
      try {
        const events = await this.#options.keeper.events(job.id, relay.nextSeq);
        if (job.fill(relay, events, this.#options.clock())) return;
      } catch (error) {
        if (this.#options.clock() > deadline) {
          relay.fail(error as ApiError, this.#options.clock());
          job.leave(relay);
          if (job.listeners.size === 0) job.leftAt ??= this.#options.clock();
          return;
        }
      }
      await new Promise(resolve => setTimeout(resolve, CATCH_UP_PAUSE_MS));
    }
  }

  /** Events of one read: each reply gets its share in one piece. */
  hear(events: readonly TokenEvent[]): void {
    const now = this.#options.clock();
    const touched = new Set<OpenJob>();
    for (const event of events) {
      const job = this.#jobs.get(event.id);
      if (job === undefined) continue;
      if (this.#isAltered(job, event)) {
        void this.fail(job, incomplete(), now);
        continue;
      }
      const verdict = job.isAsking ? 'ask' : job.hear(event, now);
      if (verdict === 'ask') void this.ask(job);
      if (verdict !== 'next') continue;
      touched.add(job);
      this.#options.onNews(job, event);
    }
    for (const job of touched) this.#tell(job, now);
  }

  /** Events may have been missed. */
  askAll(shard: string): void {
    for (const job of this.#jobs.values()) if (job.record.shard === shard) void this.ask(job);
  }

  /** Reads a job's record from where it stands. One read at a time: what comes meanwhile is read after it. */
  async ask(job: OpenJob): Promise<void> {
    if (job.isAsking) {
      job.isAskedAgain = true;
      return;
    }
    job.isAsking = true;
    try {
      do {
        job.isAskedAgain = false;
        const events = await this.#options.keeper.events(job.id, readFrom(job));
        this.#learn(job, events);
      } while (job.isAskedAgain && job.order.phase !== 'over');
    } catch {
      // Redis is away; the tail comes back with it and asks again.
    } finally {
      job.isAsking = false;
    }
  }

  #learn(job: OpenJob, events: readonly TokenEvent[]): void {
    if (this.#jobs.get(job.id) !== job) return;
    const now = this.#options.clock();
    const wanted = job.order.nextSeq;
    const isWhole = !events.some(event => this.#isAltered(job, event)) && job.learn(events, now);
    for (const event of events) if (event.seq >= wanted && event.seq < job.order.nextSeq) this.#options.onNews(job, event);
    if (isWhole) this.#tell(job, now);
    else void this.fail(job, incomplete(), now);
  }

  /** What would follow is no continuation of what was told. */
  #isAltered(job: OpenJob, event: TokenEvent): boolean {
    return job.order.isRewind(event) && job.order.phase !== 'over' && !this.#options.isTold(event);
  }

  #tell(job: OpenJob, now: number): void {
    job.flush(now);
    if (job.order.phase === 'over') this.#close(job);
  }

  /** Tells its clients the error and takes the job back. Resolves when that is done, or owed. */
  async fail(job: OpenJob, error: ApiError, now: number): Promise<void> {
    job.fail(error, now);
    await this.withdraw(job, error);
  }

  /** Nobody is told: nobody is there. */
  async withdraw(job: OpenJob, ending: Ending): Promise<void> {
    if (this.#jobs.get(job.id) !== job) return;
    job.endCode ??= ending.code;
    this.#close(job);
    await this.#options.queue.withdraw(job.record, ending);
  }

  /** It was let onto no queue: its clients are told, and nothing is left of it. */
  async refuse(job: OpenJob, error: ApiError, now: number): Promise<void> {
    if (this.#jobs.get(job.id) !== job) return;
    this.#jobs.delete(job.id);
    job.fail(error, now);
    await this.#options.keeper.drop(job.record);
  }

  #close(job: OpenJob): void {
    if (this.#jobs.get(job.id) !== job) return;
    this.#jobs.delete(job.id);
    this.#options.keeper.end(job.record, job.order.isAnswered);
    this.#options.onClosed(job);
  }

  /** What needs no answer of Redis: bounds on waiting and on memory. */
  bound(now: number): void {
    const { queueTimeoutMs, silenceTimeoutMs } = this.#options.settings;
    for (const job of [...this.#jobs.values()]) {
      const isWaiting = job.order.phase === 'waiting';
      if (job.order.silenceMs(now) > (isWaiting ? queueTimeoutMs : silenceTimeoutMs)) {
        void this.fail(job, isWaiting ? notTaken(queueTimeoutMs) : silent(silenceTimeoutMs), now);
      } else if (job.leftAt !== undefined && !job.isBackground && now - job.leftAt > this.#graceMs(job)) {
        void this.#lapse(job);
      }
    }
    this.#shed(now);
  }

  /**
   * How long it goes on without a client. One that asked for no time to come back, of a broker that has died, takes the tenant's room no longer than
   * its lease would have.
   */
  #graceMs(job: OpenJob): number {
    const { resumeGraceMs, leaseMs } = this.#options.settings;
    return job.isAdopted && !job.isResumable ? Math.min(resumeGraceMs, leaseMs) : resumeGraceMs;
  }

  /** What Redis is to be told and asked, now and then. Throws when it is away. */
  async upkeep(now: number): Promise<void> {
    await this.#announce(now);
    await this.#probe(now);
  }

  /** Its client has not come back; it may have come back to another broker. */
  async #lapse(job: OpenJob): Promise<void> {
    if (job.isLapsing) return;
    job.isLapsing = true;
    try {
      const isHeard = await this.#options.keeper.isHeardElsewhere(job.id);
      if (job.leftAt === undefined) return;
      if (isHeard) job.leftAt = this.#options.clock();
      else void this.withdraw(job, LEFT);
    } catch {
      // Redis is away, and nobody can come back to any broker.
    } finally {
      job.isLapsing = false;
    }
  }

  /** The slowest readers go when all together hold too much. */
  #shed(now: number): void {
    const held: { relay: Relay; bytes: number }[] = [];
    let total = 0;
    for (const job of this.#jobs.values()) {
      for (const relay of job.listeners) {
        const bytes = relay.bufferedBytes;
        if (bytes === 0) continue;
        total += bytes;
        held.push({ relay, bytes });
      }
    }
    if (total <= this.#options.settings.maxBufferedTotalBytes) return;
    for (const { relay, bytes } of held.sort((a, b) => b.bytes - a.bytes)) {
      relay.cutOff('slow', now);
      total -= bytes;
      if (total <= this.#options.settings.maxBufferedTotalBytes) return;
    }
  }

  async #announce(now: number): Promise<void> {
    const interval = this.#options.settings.resumeGraceMs / ANNOUNCEMENTS;
    const due = [...this.#jobs.values()].filter(job => (job.listeners.size > 0 || job.isBackground) && now - job.announcedAt >= interval);
    if (due.length === 0) return;
    await this.#options.keeper.announce(due.map(job => job.record));
    for (const job of due) job.announcedAt = now;
  }

  /** What `out` no longer holds, or never did, is in the record. */
  async #probe(now: number): Promise<void> {
    const due = [...this.#jobs.values()].filter(job => !job.isAsking && job.order.silenceMs(now) >= PROBE_MS && now >= job.probeAt);
    if (due.length === 0) return;
    for (const job of due) job.isAsking = true;
    try {
      const found = await this.#options.keeper.eventsOfAll(due.map(job => ({ id: job.id, from: readFrom(job) })));
      for (const [index, job] of due.entries()) {
        job.probeAt = now + Math.min(PROBE_MS * 2 ** ++job.probeCount, PROBE_MAX_MS);
        this.#learn(job, found[index] ?? []);
      }
    } finally {
      for (const job of due) {
        job.isAsking = false;
        if (job.isAskedAgain) void this.ask(job);
      }
    }
  }

  /** Something for those who have heard nothing for a while, whether Redis is there or not: by it a client that left is noticed. Never throws. */
  async beat(): Promise<void> {
    if (this.#isBeating) return;
    this.#isBeating = true;
    try {
      await this.#beat();
    } finally {
      this.#isBeating = false;
    }
  }

  async #beat(): Promise<void> {
    const asked = this.#options.clock();
    const { heartbeatMs } = this.#options.settings;
    const firstMs = Math.min(FIRST_BEAT_MS, heartbeatMs);
    const due: { job: OpenJob; relays: Relay[] }[] = [];
    for (const job of this.#jobs.values()) {
      const relays = [...job.listeners].filter(relay => relay.idleMs(asked) >= (relay.isHushed ? firstMs : heartbeatMs));
      if (relays.length > 0) due.push({ job, relays });
    }
    const waiting = due.filter(({ job }) => job.order.phase === 'waiting');
    for (const { relays } of due.filter(({ job }) => job.order.phase !== 'waiting'))
      for (const relay of relays) relay.beat('working', asked);
    if (waiting.length === 0) return;
    const places = await this.#options.places(waiting.map(({ job }) => job.record)).catch(() => []);
    const now = this.#options.clock();
    for (const [index, { relays }] of waiting.entries()) for (const relay of relays) relay.beat(places[index] ?? 'waiting', now);
  }
}

/** The last event that was told comes along: it shows whether the record is still the one that it was told from. */
function readFrom(job: OpenJob): number {
  return Math.max(0, job.order.nextSeq - 1);
}

function incomplete(): ApiError {
  return new ApiError('generation_failed', 'A part of the answer was lost.');
}

export function cancelled(): ApiError {
  return new ApiError('request_cancelled', 'The request was cancelled.');
}

function notTaken(limitMs: number): ApiError {
  return new ApiError('no_batcher', `No batcher took the request within ${limitMs} ms.`, {
    retryAfterSeconds: NO_BATCHER_RETRY_AFTER_SECONDS,
  });
}

function silent(limitMs: number): ApiError {
  return new ApiError('generation_failed', `The batcher has been silent for ${limitMs} ms.`);
}
