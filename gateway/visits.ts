/**
 * Visits: the clients of a broker's jobs: those whose request became a job, and those who come to one that was there before them, from where
 * they stand. Each gets every event once, however many come and wherever the job runs.
 */
import { ApiError } from '../shared/errors.ts';
import { isTerminal, type TokenEvent } from '../shared/token-event.ts';
import type { AttachRequest, CancelRequest, ReplyShape, ResumeRequest } from './broker-call.ts';
import type { Settings } from './env.ts';
import type { JobQueue } from './job-queue.ts';
import type { OpenJob } from './open-job.ts';
import { cancelled, type OpenJobs } from './open-jobs.ts';
import type { RecordKeeper } from './record-keeper.ts';
import { Relay } from './relay.ts';
import { type ReplyRecord, splitToken, streamToken } from './reply-record.ts';
import { isSameText } from './same-text.ts';
import { writerFor } from './writer-for.ts';

/** How a client came to a job. */
export interface Visit {
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

export interface VisitsOptions {
  settings: Pick<Settings, 'maxBufferedBytes'>;
  jobs: OpenJobs;
  keeper: RecordKeeper;
  queue: JobQueue;
  /** Events of that shard's jobs are heard from now on. */
  follow(shard: string): Promise<void>;
  /** There is something to look after. */
  onWork(): void;
  clock(): number;
}

/** EventSource waits 3 to 5 seconds of its own. */
const RECONNECT_LINE = 'retry: 1000\n';
const REPLAYED = { 'x-sluice-idempotent-replay': 'true' };
const NOBODY_STATUS = 204;

export class Visits {
  readonly #options: VisitsOptions;

  constructor(options: VisitsOptions) {
    this.#options = options;
  }

  /** The reply of the job that answers an idempotency key; 204 when none does. */
  async attach(call: AttachRequest, signal: AbortSignal): Promise<Response> {
    const holder = await this.#options.keeper.claimed(call.idempotency.digest);
    if (holder === undefined) return new Response(null, { status: NOBODY_STATUS });
    if (holder.bodyDigest !== call.idempotency.bodyDigest) throw conflict();
    const reply = await this.join(holder.id, call.tenant, { signal, seenSeq: -1, headers: REPLAYED, isRepeat: true });
    return reply ?? new Response(null, { status: NOBODY_STATUS });
  }

  /** The reply once more, from where its client stands. */
  async resume(call: ResumeRequest, signal: AbortSignal): Promise<Response> {
    const token = call.token === undefined ? undefined : splitToken(call.token);
    const tenant = token?.tenant ?? call.tenant;
    if (tenant === undefined) throw noStream();
    if (token !== undefined) {
      const record = await this.#options.keeper.find(call.id, tenant);
      if (record === undefined || !isSameText(token.secret, record.token)) throw noStream();
    }
    const reply = await this.join(call.id, tenant, { signal, seenSeq: call.seenSeq, preamble: RECONNECT_LINE });
    if (reply === undefined) throw noStream();
    return reply;
  }

  async cancel({ id, tenant }: CancelRequest): Promise<Response> {
    const { jobs, keeper, queue, clock, onWork } = this.#options;
    const open = jobs.find(id, tenant);
    if (open !== undefined) {
      await jobs.fail(open, cancelled(), clock());
      return Response.json({ id, object: 'stream', status: 'cancelled' });
    }
    const record = await keeper.find(id, tenant);
    if (record === undefined) throw noStream();
    const events = await keeper.events(id, 0);
    const isOver = events.some(isTerminal);
    if (!isOver) {
      onWork();
      keeper.end(record, false);
      await queue.withdraw(record, cancelled());
    }
    return Response.json({ id, object: 'stream', status: isOver ? 'finished' : 'cancelled' });
  }

  /** One more client for a job; undefined when there is none such, or no more. */
  async join(id: string, tenant: string, visit: Visit): Promise<Response | undefined> {
    const { jobs, keeper, queue, clock, follow, onWork } = this.#options;
    const known = jobs.find(id, tenant);
    let record = known?.record;
    let events: TokenEvent[] = [];
    if (record === undefined) {
      record = await keeper.find(id, tenant);
      if (record === undefined) return undefined;
      // Before its record is read: what is written afterwards is heard.
      await follow(record.shard);
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
    const now = clock();
    if (events.some(isTerminal)) return await this.#replay(record, events, visit);
    const entry = jobs.open(record, now);
    onWork();
    // Who came back once may come back again; who shares it came for the first time.
    if (visit.isSharer !== true) entry.isResumable = true;
    const relay = this.listen(entry, visit);
    entry.join(relay, { isBehind: true, now });
    void keeper.announce([record]).catch(() => undefined);
    void jobs.ask(entry);
    await jobs.catchUp(entry, relay);
    relay.begin(clock(), 'resumed');
    return await relay.response;
  }

  /** A client's reply, which is still to be joined to the job. */
  listen(entry: OpenJob, visit: Visit): Relay {
    const { jobs } = this.#options;
    const relay = this.#relayFor(entry.record, visit, why => jobs.departed(entry, relay, why));
    visit.signal.addEventListener('abort', () => relay.abandon(), { once: true });
    if (visit.signal.aborted) relay.abandon();
    return relay;
  }

  /** The reply of a job that is over. */
  #replay(record: ReplyRecord, events: readonly TokenEvent[], visit: Visit): Promise<Response> {
    const now = this.#options.clock();
    const relay = this.#relayFor(record, visit, () => undefined);
    for (const event of events) relay.take(event, now);
    return relay.response;
  }

  #relayFor(record: ReplyRecord, visit: Visit, onGone: ConstructorParameters<typeof Relay>[0]['onGone']): Relay {
    const { isStreamed } = record.reply;
    return new Relay({
      writer: writerFor(visit.reply === undefined ? record : { ...record, reply: visit.reply }),
      isSureToFit: record.isSureToFit,
      maxBufferedBytes: this.#options.settings.maxBufferedBytes,
      headers: {
        'x-sluice-stream-id': record.id,
        ...(isStreamed && { 'x-sluice-stream-token': streamToken(record) }),
        ...visit.headers,
      },
      ...(isStreamed && visit.preamble !== undefined && { preamble: visit.preamble }),
      seenSeq: isStreamed ? visit.seenSeq : -1,
      onGone,
      now: this.#options.clock(),
    });
  }
}

export function conflict(): ApiError {
  return new ApiError('idempotency_conflict', 'This Idempotency-Key was used with another request body.', { param: 'idempotency-key' });
}

function noStream(): ApiError {
  return new ApiError('not_found', 'There is no such stream, or no more.');
}
