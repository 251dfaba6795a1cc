/**
 * LengthGroups: texts of many lengths in a few groups of like length, each of which is padded to its longest; so that as little padding is
 * computed as so few groups allow.
 */

/** What attention costs for a place whatever the length, in the cost of one place that is seen from another (measured, roughly). */
const PLACE_COST = 64;

/** Indices of the texts of each group, the longest texts first; at most so many groups, none of them empty. */
export function lengthGroups(lengths: readonly number[], most: number): number[][] {
  const byLength = Map.groupBy(lengths.keys(), index => lengths[index]!);
  const distinct = [...byLength.keys()].sort((a, b) => b - a);
  const counts = distinct.map(length => byLength.get(length)!.length);
  const starts = groupStarts(distinct, counts, most);
  return starts.map((start, group) => distinct.slice(start, starts[group + 1]).flatMap(length => byLength.get(length)!));
}

/** Of each group, the index of its longest length: by how the cheapest groups of the shorter lengths are continued to longer ones. */
function groupStarts(lengths: readonly number[], counts: readonly number[], most: number): number[] {
  const end = lengths.length;
  // cheapest[k][i]: of the lengths from i on, in k + 1 groups; first[k][i]: where the group behind the first of them starts.
  let cheapest = new Float64Array(end + 1);
  const first: Int32Array[] = [];
  for (let groups = 0; groups < most; groups++) {
    const costs = new Float64Array(end + 1);
    const next = new Int32Array(end + 1);
    for (let start = end - 1; start >= 0; start--) {
      const cost = lengths[start]! * (PLACE_COST + lengths[start]!);
      let texts = 0;
      costs[start] = Number.POSITIVE_INFINITY;
      for (let stop = start + 1; stop <= end; stop++) {
        texts += counts[stop - 1]!;
        if (groups === 0 && stop < end) continue;
        const all = texts * cost + cheapest[stop]!;
        if (all >= costs[start]!) continue;
        costs[start] = all;
        next[start] = stop;
      }
    }
    cheapest = costs;
    first.push(next);
  }
  const starts: number[] = [];
  for (let at = 0, groups = most - 1; at < end; groups--) {
    starts.push(at);
    at = first[groups]![at]!;
  }
  return starts;
}
