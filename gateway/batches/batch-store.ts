/**
 * BatchStore: a tenant's batches in its object's SQLite, and the lines of each that are still to be done. A line leaves with its result, in the
 * same breath, so what is left of a batch after any end of the process is what has no result.
 */
import type { Sql } from './file-store.ts';
import type { ListRange } from './list-range.ts';

export const BATCH_STATES = [
  'validating',
  'failed',
  'in_progress',
  'finalizing',
  'completed',
  'expired',
  'cancelling',
  'cancelled',
] as const;
export type BatchState = (typeof BATCH_STATES)[number];

/** There is something to do for it. */
export const ACTIVE_STATES: readonly BatchState[] = ['validating', 'in_progress', 'finalizing', 'cancelling'];

export interface BatchFault {
  code: string;
  message: string;
  param: string | null;
  /** From 1. */
  line: number | null;
}

export interface BatchRecord {
  id: string;
  tenant: string;
  /** Of the key that made it. */
  keyId: string;
  endpoint: string;
  inputFileId: string;
  outputFileId: string | undefined;
  errorFileId: string | undefined;
  state: BatchState;
  metadata: Record<string, string> | null;
  errors: BatchFault[];
  total: number;
  completed: number;
  failed: number;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  /** Epoch milliseconds, when each state began. */
  times: Partial<Record<BatchState, number>>;
  createdAt: number;
  /** Until then it is to be done. */
  expiresAt: number;
  /** Of its output, from its end on. */
  outputLifetimeMs: number;
  /** How far its input was looked through: bytes and lines. */
  scannedBytes: number;
  scannedLines: number;
}

/** Where a line is in the input. */
export interface BatchLine {
  /** From 1. */
  number: number;
  at: number;
  bytes: number;
  customId: string;
}

const SCHEMA = [
  'CREATE TABLE IF NOT EXISTS batch (id TEXT PRIMARY KEY, created_at INTEGER NOT NULL, state TEXT NOT NULL, record TEXT NOT NULL) WITHOUT ROWID',
  `CREATE TABLE IF NOT EXISTS line (batch_id TEXT NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL, bytes INTEGER NOT NULL,
     custom_id TEXT NOT NULL, PRIMARY KEY (batch_id, number)) WITHOUT ROWID`,
  'CREATE UNIQUE INDEX IF NOT EXISTS line_by_custom_id ON line (batch_id, custom_id)',
];

const ACTIVE = `(${ACTIVE_STATES.map(state => `'${state}'`).join(', ')})`;

export class BatchStore {
  readonly #sql: Sql;

  constructor(sql: Sql) {
    this.#sql = sql;
    for (const statement of SCHEMA) sql.exec(statement);
  }

  put(batch: BatchRecord): void {
    const { id, createdAt, state } = batch;
    this.#sql.exec(
      'INSERT OR REPLACE INTO batch (id, created_at, state, record) VALUES (?, ?, ?, ?)',
      ...[id, createdAt, state, JSON.stringify(batch)],
    );
  }

  find(id: string): BatchRecord | undefined {
    const row = this.#sql.exec('SELECT record FROM batch WHERE id = ?', id).toArray()[0];
    return row && recordOf(row);
  }

  /** Of those that are not over, oldest first. */
  activeIds(): string[] {
    const rows = this.#sql.exec(`SELECT id FROM batch WHERE state IN ${ACTIVE} ORDER BY created_at, id`).toArray();
    return rows.map(row => row.id as string);
  }

  active(): BatchRecord[] {
    return this.activeIds().flatMap(id => this.find(id) ?? []);
  }

  list({ after, limit }: ListRange): BatchRecord[] {
    const last = after === undefined ? undefined : this.find(after);
    const where = last === undefined ? '' : 'WHERE (created_at, id) < (?, ?)';
    const bindings = last === undefined ? [] : [last.createdAt, last.id];
    return this.#sql
      .exec(`SELECT record FROM batch ${where} ORDER BY created_at DESC, id DESC LIMIT ?`, ...bindings, limit)
      .toArray()
      .map(recordOf);
  }

  /** False when there is one of the same custom id. */
  addLine(batchId: string, { number, at, bytes, customId }: BatchLine): boolean {
    const query =
      'INSERT INTO line (batch_id, number, at, bytes, custom_id) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING number';
    return this.#sql.exec(query, batchId, number, at, bytes, customId).toArray().length === 1;
  }

  /** The first of those that have no result. */
  linesLeft(batchId: string, limit: number): BatchLine[] {
    return this.#sql
      .exec('SELECT * FROM line WHERE batch_id = ? ORDER BY number LIMIT ?', batchId, limit)
      .toArray()
      .map(row => ({ number: row.number as number, at: row.at as number, bytes: row.bytes as number, customId: row.custom_id as string }));
  }

  hasLine(batchId: string, number: number): boolean {
    return this.#sql.exec('SELECT 1 FROM line WHERE batch_id = ? AND number = ?', batchId, number).toArray().length === 1;
  }

  removeLine(batchId: string, number: number): void {
    this.#sql.exec('DELETE FROM line WHERE batch_id = ? AND number = ?', batchId, number);
  }

  removeLines(batchId: string): void {
    this.#sql.exec('DELETE FROM line WHERE batch_id = ?', batchId);
  }

  get isEmpty(): boolean {
    return this.#sql.exec('SELECT 1 FROM batch LIMIT 1').toArray().length === 0;
  }

  /** Of those that are over, the newest so many stay. */
  trim(most: number): void {
    const rest = `SELECT id FROM batch WHERE state NOT IN ${ACTIVE} ORDER BY created_at DESC, id DESC LIMIT -1 OFFSET ?`;
    this.#sql.exec(`DELETE FROM batch WHERE id IN (${rest})`, most);
  }

  /** Takes away those that were begun before, and are over. */
  prune(before: number): void {
    this.#sql.exec(`DELETE FROM batch WHERE state NOT IN ${ACTIVE} AND created_at <= ?`, before);
  }
}

function recordOf(row: Record<string, unknown>): BatchRecord {
  return JSON.parse(row.record as string) as BatchRecord;
}
