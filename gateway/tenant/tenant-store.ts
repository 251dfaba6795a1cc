/**
 * TenantStore: a tenant's state in its object's SQLite: keys, limits, open leases, the last minute, and the ledger. What a call has written
 * is there after an eviction or a restart; nothing here grows with the number of past requests, but for one ledger row a day, key and model.
 */
import type { Account, Ended, Lease } from './account.ts';
import type { KeyRecord, Scope } from './key-record.ts';
import type { Limits } from './limits.ts';
import { DAY_MS, dayOf } from './meter.ts';
import { WINDOW_MS } from './sliding-window.ts';

/** Of SqlStorage what is used here; tests put another SQLite under it. */
export interface Sql {
  exec(query: string, ...bindings: (string | number | null)[]): { toArray(): Record<string, unknown>[] };
}

/** One line of the ledger. */
export interface UsageRow {
  /** UTC, `2026-01-31`. */
  date: string;
  keyId: string;
  model: string;
  requests: number;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
}

/** A bit longer than the window itself, and a whole number of its seconds. */
const SPENT_LIFETIME_MS = WINDOW_MS + 2_000;
const SECOND_MS = 1_000;
const LEDGER_DAYS = 400;

const SCHEMA = [
  'CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID',
  `CREATE TABLE IF NOT EXISTS key (id TEXT PRIMARY KEY, name TEXT NOT NULL, scopes TEXT NOT NULL, limits TEXT NOT NULL,
     created_at INTEGER NOT NULL, expires_at INTEGER, revoked_at INTEGER) WITHOUT ROWID`,
  `CREATE TABLE IF NOT EXISTS lease (id TEXT PRIMARY KEY, key_id TEXT NOT NULL, admitted_at INTEGER NOT NULL,
     prompt_tokens INTEGER NOT NULL, reserved_tokens INTEGER NOT NULL) WITHOUT ROWID`,
  `CREATE TABLE IF NOT EXISTS spent (second INTEGER NOT NULL, key_id TEXT NOT NULL, requests INTEGER NOT NULL, tokens INTEGER NOT NULL,
     PRIMARY KEY (second, key_id)) WITHOUT ROWID`,
  `CREATE TABLE IF NOT EXISTS usage (day INTEGER NOT NULL, key_id TEXT NOT NULL, model TEXT NOT NULL, requests INTEGER NOT NULL,
     prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
     PRIMARY KEY (day, key_id, model)) WITHOUT ROWID`,
];

export class TenantStore {
  readonly #sql: Sql;

  constructor(sql: Sql) {
    this.#sql = sql;
    for (const statement of SCHEMA) sql.exec(statement);
  }

  limits(): Limits {
    const row = this.#sql.exec("SELECT value FROM setting WHERE name = 'limits'").toArray()[0];
    return row === undefined ? {} : (JSON.parse(row.value as string) as Limits);
  }

  setLimits(limits: Limits): void {
    this.#sql.exec("INSERT OR REPLACE INTO setting (name, value) VALUES ('limits', ?)", JSON.stringify(limits));
  }

  keys(): KeyRecord[] {
    return this.#sql.exec('SELECT * FROM key ORDER BY created_at, id').toArray().map(keyOf);
  }

  putKey(key: KeyRecord): void {
    this.#sql.exec(
      'INSERT OR REPLACE INTO key (id, name, scopes, limits, created_at, expires_at, revoked_at) VALUES (?, ?, ?, ?, ?, ?, ?)',
      key.id,
      key.name,
      JSON.stringify(key.scopes),
      JSON.stringify(key.limits),
      key.createdAt,
      key.expiresAt ?? null,
      key.revokedAt ?? null,
    );
  }

  forgetKey(id: string): void {
    this.#sql.exec('DELETE FROM key WHERE id = ?', id);
  }

  /** Tells a new account what has happened. */
  replay(account: Account, now: number): void {
    for (const past of this.#spent(now)) account.recallSpent(past, now);
    for (const past of this.#today(now)) account.recallDay(past, now);
    for (const lease of this.#leases()) account.recallLease(lease, now);
  }

  #leases(): Lease[] {
    return this.#sql
      .exec('SELECT * FROM lease')
      .toArray()
      .map(row => ({
        id: row.id as string,
        keyId: row.key_id as string,
        admittedAt: row.admitted_at as number,
        promptTokens: row.prompt_tokens as number,
        reservedTokens: row.reserved_tokens as number,
      }));
  }

  putLease(lease: Lease): void {
    this.#sql.exec(
      'INSERT OR REPLACE INTO lease (id, key_id, admitted_at, prompt_tokens, reserved_tokens) VALUES (?, ?, ?, ?, ?)',
      lease.id,
      lease.keyId,
      lease.admittedAt,
      lease.promptTokens,
      lease.reservedTokens,
    );
  }

  /** What ended requests of the last minute used, by the second in which they were let in. */
  #spent(now: number): { keyId: string; requests: number; tokens: number; at: number }[] {
    return this.#sql
      .exec('SELECT * FROM spent WHERE second > ?', Math.floor((now - SPENT_LIFETIME_MS) / SECOND_MS))
      .toArray()
      .map(row => ({
        keyId: row.key_id as string,
        requests: row.requests as number,
        tokens: row.tokens as number,
        at: (row.second as number) * SECOND_MS,
      }));
  }

  /** Tokens of today, by key. */
  #today(now: number): { keyId: string; tokens: number }[] {
    return this.#sql
      .exec('SELECT key_id, SUM(prompt_tokens + completion_tokens) AS tokens FROM usage WHERE day = ? GROUP BY key_id', dayOf(now))
      .toArray()
      .map(row => ({ keyId: row.key_id as string, tokens: row.tokens as number }));
  }

  end({ lease, used }: Ended, model: string, now: number): void {
    this.#sql.exec('DELETE FROM lease WHERE id = ?', lease.id);
    if (used === undefined) return;
    const tokens = used.promptTokens + used.completionTokens;
    if (now - lease.admittedAt < SPENT_LIFETIME_MS) {
      this.#sql.exec(
        `INSERT INTO spent (second, key_id, requests, tokens) VALUES (?, ?, 1, ?)
         ON CONFLICT DO UPDATE SET requests = requests + 1, tokens = tokens + excluded.tokens`,
        Math.floor(lease.admittedAt / SECOND_MS),
        lease.keyId,
        tokens,
      );
    }
    this.#sql.exec(
      `INSERT INTO usage (day, key_id, model, requests, prompt_tokens, cached_tokens, completion_tokens) VALUES (?, ?, ?, 1, ?, ?, ?)
       ON CONFLICT DO UPDATE SET requests = requests + 1, prompt_tokens = prompt_tokens + excluded.prompt_tokens,
         cached_tokens = cached_tokens + excluded.cached_tokens, completion_tokens = completion_tokens + excluded.completion_tokens`,
      dayOf(lease.admittedAt),
      lease.keyId,
      model,
      used.promptTokens,
      used.cachedTokens,
      used.completionTokens,
    );
  }

  /** Rows of both days and those between, oldest first; at most `limit`. */
  usage(range: { fromDay: number; toDay: number; limit: number }): UsageRow[] {
    return this.#sql
      .exec('SELECT * FROM usage WHERE day BETWEEN ? AND ? ORDER BY day, key_id, model LIMIT ?', range.fromDay, range.toDay, range.limit)
      .toArray()
      .map(row => ({
        date: new Date((row.day as number) * DAY_MS).toISOString().slice(0, 10),
        keyId: row.key_id as string,
        model: row.model as string,
        requests: row.requests as number,
        promptTokens: row.prompt_tokens as number,
        cachedTokens: row.cached_tokens as number,
        completionTokens: row.completion_tokens as number,
      }));
  }

  /** Takes away what nobody asks for any more. */
  prune(now: number): void {
    this.#sql.exec('DELETE FROM spent WHERE second <= ?', Math.floor((now - SPENT_LIFETIME_MS) / SECOND_MS));
    this.#sql.exec('DELETE FROM usage WHERE day < ?', dayOf(now) - LEDGER_DAYS);
  }
}

function keyOf(row: Record<string, unknown>): KeyRecord {
  return {
    id: row.id as string,
    name: row.name as string,
    scopes: JSON.parse(row.scopes as string) as Scope[],
    limits: JSON.parse(row.limits as string) as Limits,
    createdAt: row.created_at as number,
    expiresAt: (row.expires_at as number | null) ?? undefined,
    revokedAt: (row.revoked_at as number | null) ?? undefined,
  };
}
