/**
 * FileStore: a tenant's files in its object's SQLite, in pieces, so that neither writing nor reading one takes memory for the whole. A file that
 * is being written is seen by nobody; an upload that the end of the process cut off is gone when the store opens again.
 */
import { ApiError } from '../../shared/errors.ts';
import type { ListRange } from './list-range.ts';

/** Of SqlStorage what is used here; tests put another SQLite under it. */
export interface Sql {
  exec(query: string, ...bindings: (string | number | null | ArrayBuffer)[]): { toArray(): Record<string, unknown>[] };
}

export type FilePurpose = 'batch' | 'batch_output';

export interface StoredFile {
  id: string;
  purpose: FilePurpose;
  filename: string;
  bytes: number;
  /** Epoch milliseconds. */
  createdAt: number;
  expiresAt: number;
}

/** SQLite on Cloudflare takes 2 MB a value. */
export const MAX_PIECE_BYTES = 512 * 1024;
/** What is read at once of a file that is sent. */
const CHUNK_BYTES = 64 * 1024;

const SCHEMA = [
  `CREATE TABLE IF NOT EXISTS file (id TEXT PRIMARY KEY, purpose TEXT NOT NULL, filename TEXT NOT NULL, bytes INTEGER NOT NULL,
     created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, is_ready INTEGER NOT NULL) WITHOUT ROWID`,
  'CREATE TABLE IF NOT EXISTS piece (file_id TEXT NOT NULL, at INTEGER NOT NULL, content BLOB NOT NULL, PRIMARY KEY (file_id, at))',
];

export class FileStore {
  readonly #sql: Sql;
  #totalBytes = 0;

  constructor(sql: Sql) {
    this.#sql = sql;
    for (const statement of SCHEMA) sql.exec(statement);
    const cutOff = "SELECT id FROM file WHERE is_ready = 0 AND purpose = 'batch'";
    for (const row of sql.exec(cutOff).toArray()) this.remove(row.id as string);
    this.#totalBytes = Number(sql.exec('SELECT COALESCE(SUM(bytes), 0) AS bytes FROM file').toArray()[0]!.bytes);
  }

  /** Of all files, those that are being written too. */
  get totalBytes(): number {
    return this.#totalBytes;
  }

  /** Of those that are finished. */
  get count(): number {
    return Number(this.#sql.exec('SELECT COUNT(*) AS count FROM file WHERE is_ready = 1').toArray()[0]!.count);
  }

  /** A file to be written; nobody sees it before finish. */
  begin(id: string, purpose: FilePurpose): void {
    const query = "INSERT INTO file (id, purpose, filename, bytes, created_at, expires_at, is_ready) VALUES (?, ?, '', 0, 0, 0, 0)";
    this.#sql.exec(query, id, purpose);
  }

  /** Throws for a file that was taken away meanwhile. */
  append(id: string, content: Uint8Array): void {
    const row = this.#sql.exec('SELECT bytes FROM file WHERE id = ?', id).toArray()[0];
    if (row === undefined) throw gone();
    let at = Number(row.bytes);
    for (let from = 0; from < content.length; from += MAX_PIECE_BYTES) {
      const piece = content.slice(from, from + MAX_PIECE_BYTES);
      this.#sql.exec('INSERT INTO piece (file_id, at, content) VALUES (?, ?, ?)', id, at, piece.buffer as ArrayBuffer);
      at += piece.length;
    }
    this.#sql.exec('UPDATE file SET bytes = ? WHERE id = ?', at, id);
    this.#totalBytes += content.length;
  }

  /** It is there now. Throws for a file that was taken away meanwhile. */
  finish(id: string, { filename, createdAt, expiresAt }: Pick<StoredFile, 'filename' | 'createdAt' | 'expiresAt'>): StoredFile {
    const query = 'UPDATE file SET is_ready = 1, filename = ?, created_at = ?, expires_at = ? WHERE id = ?';
    this.#sql.exec(query, filename, createdAt, expiresAt, id);
    const file = this.find(id);
    if (file === undefined) throw gone();
    return file;
  }

  /** Undefined for one that there is not, or not yet. */
  find(id: string): StoredFile | undefined {
    const row = this.#sql.exec('SELECT * FROM file WHERE id = ? AND is_ready = 1', id).toArray()[0];
    return row && fileOf(row);
  }

  list({ after, limit, order }: ListRange, purpose: string | undefined): StoredFile[] {
    const [compare, direction] = order === 'asc' ? ['>', 'ASC'] : ['<', 'DESC'];
    const last = after === undefined ? undefined : this.find(after);
    const wheres = [
      'is_ready = 1',
      ...(purpose === undefined ? [] : ['purpose = ?']),
      ...(last === undefined ? [] : [`(created_at, id) ${compare} (?, ?)`]),
    ];
    const bindings = [...(purpose === undefined ? [] : [purpose]), ...(last === undefined ? [] : [last.createdAt, last.id])];
    const query = `SELECT * FROM file WHERE ${wheres.join(' AND ')} ORDER BY created_at ${direction}, id ${direction} LIMIT ?`;
    return this.#sql
      .exec(query, ...bindings, limit)
      .toArray()
      .map(fileOf);
  }

  remove(id: string): void {
    const row = this.#sql.exec('DELETE FROM file WHERE id = ? RETURNING bytes', id).toArray()[0];
    if (row === undefined) return;
    this.#sql.exec('DELETE FROM piece WHERE file_id = ?', id);
    this.#totalBytes -= Number(row.bytes);
  }

  /** The piece that holds a place and what follows it, from that place on; undefined at the end. */
  pieceFrom(id: string, place: number): Uint8Array | undefined {
    const query = 'SELECT at, content FROM piece WHERE file_id = ? AND at <= ? ORDER BY at DESC LIMIT 1';
    const row = this.#sql.exec(query, id, place).toArray()[0];
    if (row === undefined) return undefined;
    const piece = new Uint8Array(row.content as ArrayBuffer).subarray(place - Number(row.at));
    return piece.length === 0 ? undefined : piece;
  }

  /** Some bytes from a place on; undefined at the end. */
  chunkFrom(id: string, place: number): Uint8Array | undefined {
    const first = this.pieceFrom(id, place);
    // Results are a piece each, and small.
    return first === undefined || first.length >= CHUNK_BYTES ? first : this.read(id, place, CHUNK_BYTES);
  }

  /** So many bytes from a place on; fewer at the end. */
  read(id: string, place: number, length: number): Uint8Array {
    const whole = new Uint8Array(length);
    let done = 0;
    while (done < length) {
      const piece = this.pieceFrom(id, place + done)?.subarray(0, length - done);
      if (piece === undefined) return whole.subarray(0, done);
      whole.set(piece, done);
      done += piece.length;
    }
    return whole;
  }

  /** Takes away what has had its time, but for those that are in use. */
  prune(now: number, isInUse: (id: string) => boolean): void {
    for (const row of this.#sql.exec('SELECT id FROM file WHERE is_ready = 1 AND expires_at <= ?', now).toArray()) {
      if (!isInUse(row.id as string)) this.remove(row.id as string);
    }
  }

  /** When something is next to be taken away. */
  get nextExpiry(): number | undefined {
    const row = this.#sql.exec('SELECT MIN(expires_at) AS at FROM file WHERE is_ready = 1').toArray()[0];
    return row?.at === null || row === undefined ? undefined : Number(row.at);
  }
}

function gone(): ApiError {
  return new ApiError('not_found', 'The file was deleted while it was written.');
}

function fileOf(row: Record<string, unknown>): StoredFile {
  return {
    id: row.id as string,
    purpose: row.purpose as FilePurpose,
    filename: row.filename as string,
    bytes: row.bytes as number,
    createdAt: row.created_at as number,
    expiresAt: row.expires_at as number,
  };
}
