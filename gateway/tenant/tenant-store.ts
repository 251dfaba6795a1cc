/**
 * TenantStore: a tenant's state in its object's SQLite: keys, limits, open leases, the last minute, and the ledger. Keys and limits are there
 * at once; what requests do is gathered and written by flush, since a commit costs more than a request's whole accounting. What was flushed is
 * there after an eviction or a restart; nothing grows with the number of past requests, but for one ledger row a day, key and model.
 */
import type { Account, Ended, Lease, Used } from './account.ts';
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
const DEFAULT_WEIGHT = 1;

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

const PUT_LEASE = 'INSERT OR REPLACE INTO lease (id, key_id, admitted_at, prompt_tokens, reserved_tokens) VALUES (?, ?, ?, ?, ?)';
const ADD_SPENT = `INSERT INTO spent (second, key_id, requests, tokens) VALUES (?, ?, ?, ?)
  ON CONFLICT DO UPDATE SET requests = requests + excluded.requests, tokens = tokens + excluded.tokens`;
const ADD_USAGE = `INSERT INTO usage (day, key_id, model, requests, prompt_tokens, cached_tokens, completion_tokens) VALUES (?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT DO UPDATE SET requests = requests + excluded.requests, prompt_tokens = prompt_tokens + excluded.prompt_tokens,
    cached_tokens = cached_tokens + excluded.cached_tokens, completion_tokens = completion_tokens + excluded.completion_tokens`;

const NOTHING_USED: Used = { promptTokens: 0, cachedTokens: 0, completionTokens: 0 };

/** What is not yet in the tables. */
interface Unwritten {
  leases: Map<string, Lease>;
  /** Leases in the table that are over. */
  gone: Set<string>;
  spent: Map<string, { second: number; keyId: string; requests: number; tokens: number }>;
  usage: Map<string, Used & { day: number; keyId: string; model: string; requests: number }>;
}

function nothingUnwritten(): Unwritten {
  return { leases: new Map(), gone: new Set(), spent: new Map(), usage: new Map() };
}

function entryOf<V>(map: Map<string, V>, key: string, make: () => V): V {
  let entry = map.get(key);
  if (entry === undefined) {
    entry = make();
    map.set(key, entry);
  }
  return entry;
}

export class TenantStore {
  readonly #sql: Sql;
  /** Leases in the table. */
  readonly #stored: Set<string>;
  #unwritten = nothingUnwritten();
  #weight: number | undefined;

  constructor(sql: Sql) {
    this.#sql = sql;
    for (const statement of SCHEMA) sql.exec(statement);
    this.#stored = new Set(this.#leases().map(lease => lease.id));
  }

  limits(): Limits {
    const row = this.#sql.exec("SELECT value FROM setting WHERE name = 'limits'").toArray()[0];
    return row === undefined ? {} : (JSON.parse(row.value as string) as Limits);
  }

  setLimits(limits: Limits): void {
    this.#sql.exec("INSERT OR REPLACE INTO setting (name, value) VALUES ('limits', ?)", JSON.stringify(limits));
  }

  /** Asked by every request. */
  weight(): number {
    this.#weight ??= this.#readWeight();
    return this.#weight;
  }

  #readWeight(): number {
    const row = this.#sql.exec("SELECT value FROM setting WHERE name = 'weight'").toArray()[0];
    return row === undefined ? DEFAULT_WEIGHT : Number(row.value);
  }

  setWeight(weight: number): void {
    this.#sql.exec("INSERT OR REPLACE INTO setting (name, value) VALUES ('weight', ?)", String(weight));
    this.#weight = weight;
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

  /** Tells a new account what has happened, as written. */
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
    this.#unwritten.leases.set(lease.id, lease);
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
    const { leases, gone, spent, usage } = this.#unwritten;
    leases.delete(lease.id);
    if (this.#stored.has(lease.id)) gone.add(lease.id);
    if (used === undefined) return;
    const tokens = used.promptTokens + used.completionTokens;
    if (now - lease.admittedAt < SPENT_LIFETIME_MS) {
      const second = Math.floor(lease.admittedAt / SECOND_MS);
      const row = entryOf(spent, `${second} ${lease.keyId}`, () => ({ second, keyId: lease.keyId, requests: 0, tokens: 0 }));
      row.requests += 1;
      row.tokens += tokens;
    }
    const day = dayOf(lease.admittedAt);
    const row = entryOf(usage, `${day} ${lease.keyId} ${model}`, () => ({ day, keyId: lease.keyId, model, requests: 0, ...NOTHING_USED }));
    row.requests += 1;
    row.promptTokens += used.promptTokens;
    row.cachedTokens += used.cachedTokens;
    row.completionTokens += used.completionTokens;
  }

  get isWritten(): boolean {
    const { leases, gone, spent, usage } = this.#unwritten;
    return leases.size + gone.size + spent.size + usage.size === 0;
  }

  /** Writes what has gathered; in one transaction, since an object's statements between two awaits are one. */
  flush(): void {
    const { leases, gone, spent, usage } = this.#unwritten;
    this.#unwritten = nothingUnwritten();
    for (const id of gone) {
      this.#sql.exec('DELETE FROM lease WHERE id = ?', id);
      this.#stored.delete(id);
    }
    for (const { id, keyId, admittedAt, promptTokens, reservedTokens } of leases.values()) {
      this.#sql.exec(PUT_LEASE, id, keyId, admittedAt, promptTokens, reservedTokens);
      this.#stored.add(id);
    }
    for (const { second, keyId, requests, tokens } of spent.values()) this.#sql.exec(ADD_SPENT, second, keyId, requests, tokens);
    for (const { day, keyId, model, requests, promptTokens, cachedTokens, completionTokens } of usage.values()) {
      this.#sql.exec(ADD_USAGE, day, keyId, model, requests, promptTokens, cachedTokens, completionTokens);
    }
  }

  /** As written: flush first. Rows of both days and those between, oldest first; at most `limit`. */
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
