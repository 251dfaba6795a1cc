/** MemorySql: SQLite in memory in place of a Durable Object's, for stores under test. */
import { DatabaseSync } from 'node:sqlite';
import type { Sql } from '../../../gateway/batches/file-store.ts';

export function memorySql(): Sql {
  const database = new DatabaseSync(':memory:');
  return {
    exec(query, ...bindings) {
      const values = bindings.map(value => (value instanceof ArrayBuffer ? new Uint8Array(value) : value));
      const rows = database.prepare(query).all(...values);
      return { toArray: () => rows as Record<string, unknown>[] };
    },
  };
}
