/** Directory: the one Durable Object that lists the tenants, by name; what a tenant has is in its own object. Only the admin calls ask it. */
import { DurableObject } from 'cloudflare:workers';
import type { Env } from './env.ts';

export interface TenantEntry {
  name: string;
  /** Epoch milliseconds. */
  createdAt: number;
}

export class Directory extends DurableObject<Env> {
  readonly #sql: SqlStorage;

  constructor(state: DurableObjectState, env: Env) {
    super(state, env);
    this.#sql = state.storage.sql;
    this.#sql.exec('CREATE TABLE IF NOT EXISTS tenant (name TEXT PRIMARY KEY, created_at INTEGER NOT NULL) WITHOUT ROWID');
  }

  /** The entry, and whether it was new. */
  register(name: string): { entry: TenantEntry; isNew: boolean } {
    const isNew = this.find(name) === undefined;
    if (isNew) this.#sql.exec('INSERT INTO tenant (name, created_at) VALUES (?, ?)', name, Date.now());
    return { entry: this.find(name)!, isNew };
  }

  find(name: string): TenantEntry | undefined {
    return entryOf(this.#sql.exec('SELECT * FROM tenant WHERE name = ?', name).toArray()[0]);
  }

  /** Those after a name, in order, at most `limit`. */
  list(after: string, limit: number): TenantEntry[] {
    const rows = this.#sql.exec('SELECT * FROM tenant WHERE name > ? ORDER BY name LIMIT ?', after, limit).toArray();
    return rows.map(row => entryOf(row)!);
  }

  remove(name: string): void {
    this.#sql.exec('DELETE FROM tenant WHERE name = ?', name);
  }
}

function entryOf(row: Record<string, unknown> | undefined): TenantEntry | undefined {
  return row === undefined ? undefined : { name: row.name as string, createdAt: row.created_at as number };
}
