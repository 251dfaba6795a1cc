import { expect, test } from 'vitest';
import { type RowCopy, RowMap } from '../../../batcher/scheduler/row-map.ts';
import { Sequence } from '../../../batcher/scheduler/sequence.ts';
import { random } from '../random.ts';

function sequence(id: string, computed: number): Sequence {
  const made = new Sequence(
    {
      id,
      tenant: 'a',
      serviceClass: 'default',
      promptTokenIds: [1, 2],
      maxNewTokens: 1,
      arrivedAt: 0,
      reproducible: false,
      choiceIds: [id],
    },
    { choiceIds: [id], contextTokens: 64 },
  );
  made.computedCount = computed;
  return made;
}

/** 'D' decodes, 'P' does not, '_' is free. */
function layout(picture: string): RowMap {
  const rows = new RowMap(picture.length);
  [...picture].forEach((kind, row) => {
    if (kind !== '_') rows.place(sequence(`${kind}${row}`, 10), row);
  });
  return rows;
}

function pack(rows: RowMap, fillerCost: number): { picture: string; length: number; moves: RowCopy[] } {
  const moves: RowCopy[] = [];
  const decodes = (each: Sequence): boolean => each.id.startsWith('D');
  let count = 0;
  for (let row = 0; row < rows.rowCount; row += 1) if (rows.at(row) !== undefined && decodes(rows.at(row)!)) count += 1;
  const length = rows.pack(decodes, count, { fillerCost: () => fillerCost, onMove: copy => moves.push(copy) });
  rows.check();
  const picture = Array.from({ length: rows.rowCount }, (_, row) => rows.at(row)?.id[0] ?? '_').join('');
  return { picture, length, moves };
}

test.each([
  ['DDD_P', 0, 'DDD_P', 3, 0],
  ['D_DD', 0, 'DDD_', 3, 1],
  ['_D_D', 0, 'DD__', 2, 1],
  ['DPD_', 0, 'DPD_', 3, 0],
  ['DPD_', 99, 'DD_P', 2, 2],
  ['PPPP', 99, 'PPPP', 0, 0],
  ['PDPD', 99, 'PDPD', 4, 0],
])('%s with filler cost %i becomes %s', (before, cost, after, length, moveCount) => {
  const packed = pack(layout(before), cost);
  expect([packed.picture, packed.length, packed.moves.length]).toEqual([after, length, moveCount]);
});

test('refuses two sequences in a row and a sequence in two rows', () => {
  const rows = new RowMap(2);
  const first = sequence('D0', 0);
  rows.place(first, 0);
  expect(() => rows.place(sequence('D1', 0), 0)).toThrow('has a sequence');
  expect(() => rows.place(first, 1)).toThrow('has a row');
  rows.vacate(first);
  expect(() => rows.vacate(first)).toThrow('has no row');
});

test('any layout becomes dense, and the moves in their order carry every content to its row', () => {
  const pick = random(5);
  for (let i = 0; i < 10_000; i += 1) {
    const picture = Array.from({ length: 1 + pick(8) }, () => 'D_P'[pick(3)]).join('');
    const rows = layout(picture);
    const contents = [...picture].map((_, row) => rows.at(row)?.id);
    const { length, moves } = pack(rows, pick(2) * 99);
    for (const { from, to } of moves) contents[to] = contents[from];
    for (let row = 0; row < rows.rowCount; row += 1) {
      const id = rows.at(row)?.id;
      if (id !== undefined) expect(contents[row]).toBe(id);
      if (row < length) expect(id).toBeDefined();
      else expect(id?.startsWith('D') ?? false).toBe(false);
    }
  }
});
