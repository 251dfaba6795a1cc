/** FileStore and what goes through files by line: the same bytes however they were written, and nothing left behind. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { FileStore, MAX_PIECE_BYTES } from '../../../gateway/batches/file-store.ts';
import { scanLines } from '../../../gateway/batches/line-scan.ts';
import { memorySql } from './memory-sql.ts';

const bytes = (text: string) => new TextEncoder().encode(text);
const textOf = (array: Uint8Array | undefined) => new TextDecoder().decode(array);
const NOW = { filename: '', createdAt: 0, expiresAt: 0 };

function stored(pieces: readonly string[]): FileStore {
  const files = new FileStore(memorySql());
  files.begin('f', 'batch');
  for (const piece of pieces) files.append('f', bytes(piece));
  return files;
}

test('a file is seen when it is finished, and gone with all its pieces when it is removed', () => {
  const sql = memorySql();
  const files = new FileStore(sql);
  files.begin('a', 'batch');
  files.append('a', new Uint8Array(MAX_PIECE_BYTES * 2 + 5).fill(7));
  expect([files.find('a'), files.totalBytes]).toEqual([undefined, MAX_PIECE_BYTES * 2 + 5]);
  expect(files.finish('a', { ...NOW, filename: 'n' })).toMatchObject({ id: 'a', filename: 'n', bytes: MAX_PIECE_BYTES * 2 + 5 });
  const rest = files.read('a', MAX_PIECE_BYTES - 1, MAX_PIECE_BYTES + 9);
  expect(Buffer.compare(rest, Buffer.alloc(MAX_PIECE_BYTES + 6, 7))).toBe(0);
  // The count is told again when the object comes back to memory.
  files.begin('cut-off', 'batch');
  files.append('cut-off', bytes('half of it'));
  files.begin('results', 'batch_output');
  files.append('results', bytes('so far'));
  // What an upload had sent is gone, what a batch had written is not.
  const again = new FileStore(sql);
  expect(again.totalBytes).toBe(MAX_PIECE_BYTES * 2 + 5 + 'so far'.length);
  expect(() => again.append('cut-off', bytes('x'))).toThrow('deleted while it was written');
  again.remove('results');
  again.remove('a');
  expect([again.totalBytes, sql.exec('SELECT COUNT(*) AS n FROM piece').toArray()[0]!.n]).toEqual([0, 0]);
});

test('small pieces are sent together', () => {
  const files = stored(Array.from({ length: 1_000 }, (_, index) => `line ${index}\n`));
  files.finish('f', NOW);
  const first = files.chunkFrom('f', 0)!;
  expect(first.length).toBe(files.totalBytes);
  expect(textOf(first).endsWith('line 999\n')).toBe(true);
  expect(files.chunkFrom('f', first.length)).toBeUndefined();
});

test('pages of a list, either way round', () => {
  const files = new FileStore(memorySql());
  for (const [index, id] of ['c', 'a', 'b', 'd'].entries()) {
    files.begin(id, 'batch');
    files.finish(id, { ...NOW, createdAt: index < 2 ? 5 : 6 });
  }
  const page = (after: string | undefined, order: 'asc' | 'desc') => files.list({ after, limit: 3, order }, 'batch').map(({ id }) => id);
  expect([page(undefined, 'asc'), page('b', 'asc')]).toEqual([['a', 'c', 'b'], ['d']]);
  expect([page(undefined, 'desc'), page('c', 'desc')]).toEqual([['d', 'b', 'c'], ['a']]);
  expect(files.list({ after: undefined, limit: 9, order: 'asc' }, 'batch_output')).toEqual([]);
});

test('what has had its time goes, but not what is in use', () => {
  const files = new FileStore(memorySql());
  for (const id of ['over', 'used', 'young']) {
    files.begin(id, 'batch');
    files.finish(id, { ...NOW, expiresAt: id === 'young' ? 100 : 50 });
  }
  files.prune(50, id => id === 'used');
  expect(['over', 'used', 'young'].map(id => files.find(id)?.id)).toEqual([undefined, 'used', 'young']);
});

test('the same lines, however they lie in pieces and however often it is begun again', () => {
  const line = fc.string({ unit: fc.constantFrom('a', 'é', ' ', '\r'), maxLength: 12 });
  fc.assert(
    fc.property(
      fc.array(line, { maxLength: 30 }),
      fc.integer({ min: 1, max: 9 }),
      fc.integer({ min: 1, max: 30 }),
      fc.boolean(),
      (lines, size, budget, hasEnd) => {
        const text = lines.join('\n') + (hasEnd ? '\n' : '');
        const files = stored(text.match(new RegExp(`[^]{1,${size}}`, 'g')) ?? []);
        const found: string[] = [];
        let state = { at: 0, lines: 0 };
        for (let isEnd = false; !isEnd; ) {
          const part = scanLines({ pieceFrom: place => files.pieceFrom('f', place) }, state, { budget, longest: 100 });
          for (const { number, at, bytes: content } of part.lines) {
            expect(number).toBe(found.length + 1);
            expect(files.read('f', at, content.length)).toEqual(content);
            found.push(textOf(content));
          }
          ({ state, isEnd } = part);
        }
        // What follows the last line end is a line only when there is something.
        const wanted = text.split('\n');
        if (wanted.at(-1) === '') wanted.pop();
        expect(found).toEqual(wanted);
      },
    ),
  );
});

test('of a line that is too long as much is given as shows that', () => {
  const files = stored(['a'.repeat(50), 'a'.repeat(50), '\nshort']);
  const { lines } = scanLines({ pieceFrom: place => files.pieceFrom('f', place) }, { at: 0, lines: 0 }, { budget: 1_000, longest: 20 });
  expect(lines.map(({ number, at, bytes: content }) => [number, at, content.length])).toEqual([
    [1, 0, 21],
    [2, 101, 5],
  ]);
});
