/**
 * MergeTable: the merges of a vocabulary as token ids, three numbers a merge (left, right, union), the first merge first. Made once when a
 * model is prepared: looking up a hundred thousand texts is most of what loading a tokenizer would take.
 */
export type MergeTable = readonly number[];

/** Merges of which a part or the union is no token can not happen and are left out. */
export function mergeTable(ids: ReadonlyMap<string, number>, pairs: Iterable<readonly [left: string, right: string]>): number[] {
  const table: number[] = [];
  for (const [left, right] of pairs) {
    const leftId = ids.get(left);
    const rightId = ids.get(right);
    const union = ids.get(left + right);
    if (leftId !== undefined && rightId !== undefined && union !== undefined) table.push(leftId, rightId, union);
  }
  return table;
}
