/**
 * ResponseCache: a tenant's answers to requests that always have the same one, in its object's SQLite. Its size is bounded, what was not
 * asked for the longest goes first, and nothing outlives its time. What is kept is the answer's events, so it is told in any form.
 */
import type { Job } from '../shared/job.ts';
import { type AnswerEvent, type DeltaEvent, joinedCalls, type TokenEvent } from '../shared/token-event.ts';
import type { Sql } from './tenant/tenant-store.ts';
import { textDigest } from './text-digest.ts';

export interface CacheBounds {
  maxBytes: number;
  lifetimeMs: number;
}

/** An answer as it is kept. */
export interface CachedReply {
  /** The model that gave it, by its own name. */
  model: string;
  events: AnswerEvent[];
}

/** A value of SQLite in a Durable Object has 2 MB at most. */
export const MAX_REPLY_BYTES = 1024 * 1024;
/** One large answer does not push out all others. */
const MAX_SHARE = 4;
/** Beyond its text a row takes about this much, indexes included. */
const ROW_BYTES = 200;
/** An answer that is asked for all the time does not become a write each time. */
const TOUCH_MS = 10_000;

const SCHEMA = [
  `CREATE TABLE IF NOT EXISTS reply (key TEXT PRIMARY KEY, value TEXT NOT NULL, bytes INTEGER NOT NULL,
     expires_at INTEGER NOT NULL, used_at INTEGER NOT NULL) WITHOUT ROWID`,
  'CREATE INDEX IF NOT EXISTS reply_used ON reply (used_at)',
];

export class ResponseCache {
  readonly #sql: Sql;
  readonly #bounds: CacheBounds;
  #bytes: number;

  constructor(sql: Sql, bounds: CacheBounds) {
    this.#sql = sql;
    this.#bounds = bounds;
    for (const statement of SCHEMA) sql.exec(statement);
    this.#bytes = Number(sql.exec('SELECT COALESCE(SUM(bytes), 0) AS bytes FROM reply').toArray()[0]!.bytes);
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** As `put` got it. */
  find(key: string, now: number): string | undefined {
    if (this.#bounds.lifetimeMs === 0) return undefined;
    const row = this.#sql.exec('SELECT value, expires_at, used_at FROM reply WHERE key = ?', key).toArray()[0];
    if (row === undefined || (row.expires_at as number) <= now) return undefined;
    if (now - (row.used_at as number) >= TOUCH_MS) this.#sql.exec('UPDATE reply SET used_at = ? WHERE key = ?', now, key);
    return row.value as string;
  }

  put(key: string, value: string, now: number): void {
    const { maxBytes, lifetimeMs } = this.#bounds;
    const bytes = ROW_BYTES + new TextEncoder().encode(value).byteLength;
    if (lifetimeMs === 0 || bytes > Math.min(MAX_REPLY_BYTES, maxBytes / MAX_SHARE)) return;
    this.#drop(this.#sql.exec('DELETE FROM reply WHERE key = ? RETURNING bytes', key));
    this.#sql.exec(
      'INSERT INTO reply (key, value, bytes, expires_at, used_at) VALUES (?, ?, ?, ?, ?)',
      ...[key, value, bytes, now + lifetimeMs, now],
    );
    this.#bytes += bytes;
    if (this.#bytes > maxBytes) this.prune(now);
    while (this.#bytes > maxBytes) {
      this.#drop(this.#sql.exec('DELETE FROM reply WHERE key IN (SELECT key FROM reply ORDER BY used_at LIMIT 16) RETURNING bytes'));
    }
  }

  /** Takes away what has had its time. */
  prune(now: number): void {
    this.#drop(this.#sql.exec('DELETE FROM reply WHERE expires_at <= ? RETURNING bytes', now));
  }

  #drop(deleted: ReturnType<Sql['exec']>): void {
    for (const row of deleted.toArray()) this.#bytes -= row.bytes as number;
  }
}

/** Whether the same request always has the same answer, so that to be told an earlier one is no other than to be told it anew. */
export function isDeterministic({ sampling, task }: Pick<Job, 'sampling' | 'task'>): boolean {
  // Vectors and tokens are made again as cheaply as they would be kept.
  return task === undefined && (sampling.temperature === 0 || sampling.seed !== undefined);
}

/**
 * Equal for jobs that ask for the same, hexadecimal: parsing has put a job's fields in one order, but for tools, which the model sees in the
 * client's. Who asks, when, and how the answer is to come is no part of it; the tenant need not be, since each has a cache of its own. Nor is the
 * name by which the model was asked for, which may mean another one tomorrow.
 */
export async function contentKey(job: Job): Promise<string> {
  const { version, id, tenant, model, shard, submittedAt, serviceClass, ttftSloMs, traceparent, tracestate, ...content } = job;
  return await textDigest(JSON.stringify({ version, ...content }));
}

/** Under which a model's answer to it is kept; the model by its own name. */
export function cacheKeyOf(model: string, content: string): string {
  return `${content} ${model}`;
}

/** Undefined for an answer that is not whole. Deltas that follow each other become one. */
export function encodeReply(model: string, events: readonly TokenEvent[]): string | undefined {
  if (events.at(-1)?.type !== 'finish') return undefined;
  const kept: AnswerEvent[] = [];
  for (const event of events) {
    const last = kept.at(-1);
    if (event.type === 'delta' && last?.type === 'delta' && isOneDelta(last, event)) kept[kept.length - 1] = joined(last, event);
    else if (event.type !== 'error') kept.push(event);
  }
  return JSON.stringify({ model, events: kept.map(({ id, attempt, seq, ...event }) => event) });
}

/** The answer, as that of the job `id`. */
export function decodeReply(value: string, id: string): CachedReply {
  const { model, events } = JSON.parse(value) as { model: string; events: AnswerEvent[] };
  return { model, events: events.map((event, seq) => ({ ...event, id, attempt: 1, seq })) };
}

/** Text behind a call stays behind it; reasoning comes before both anyhow. */
function isOneDelta(first: DeltaEvent, second: DeltaEvent): boolean {
  return first.choice === second.choice && (first.calls === undefined || second.text === '');
}

function joined(first: DeltaEvent, second: DeltaEvent): DeltaEvent {
  return {
    ...first,
    ...second,
    tokenIds: [...first.tokenIds, ...second.tokenIds],
    text: first.text + second.text,
    ...((first.reasoning ?? second.reasoning) !== undefined && { reasoning: (first.reasoning ?? '') + (second.reasoning ?? '') }),
    ...((first.calls ?? second.calls) !== undefined && { calls: joinedCalls(first.calls, second.calls) }),
    ...(first.logprobs !== undefined && { logprobs: [...first.logprobs, ...(second.logprobs ?? [])] }),
  };
}
