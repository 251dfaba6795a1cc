/** CodePointSet: a set of Unicode code points, as ascending ranges that neither touch nor overlap. Surrogates are no characters and in no set. */

export type CodePointRange = readonly [first: number, last: number];

const LAST = 0x10ffff;
const SURROGATES: CodePointRange = [0xd800, 0xdfff];

export class CodePointSet {
  readonly ranges: readonly CodePointRange[];

  private constructor(ranges: readonly CodePointRange[]) {
    this.ranges = ranges;
  }

  static readonly empty = new CodePointSet([]);
  static readonly all = new CodePointSet([
    [0, SURROGATES[0] - 1],
    [SURROGATES[1] + 1, LAST],
  ]);

  static of(...ranges: readonly CodePointRange[]): CodePointSet {
    return new CodePointSet(normalized(ranges));
  }

  /** The code points of a text. */
  static from(text: string): CodePointSet {
    return CodePointSet.of(...Array.from(text, character => [character.codePointAt(0)!, character.codePointAt(0)!] as const));
  }

  get isEmpty(): boolean {
    return this.ranges.length === 0;
  }

  has(codePoint: number): boolean {
    return this.ranges.some(([first, last]) => first <= codePoint && codePoint <= last);
  }

  union(other: CodePointSet): CodePointSet {
    return CodePointSet.of(...this.ranges, ...other.ranges);
  }

  intersect(other: CodePointSet): CodePointSet {
    const result: CodePointRange[] = [];
    let i = 0;
    let j = 0;
    while (i < this.ranges.length && j < other.ranges.length) {
      const [a, b] = this.ranges[i]!;
      const [c, d] = other.ranges[j]!;
      const first = Math.max(a, c);
      const last = Math.min(b, d);
      if (first <= last) result.push([first, last]);
      if (b < d) i++;
      else j++;
    }
    return new CodePointSet(result);
  }

  /** All characters that are not in it. */
  get complement(): CodePointSet {
    const result: CodePointRange[] = [];
    let next = 0;
    for (const [first, last] of this.ranges) {
      if (next < first) result.push([next, first - 1]);
      next = last + 1;
    }
    if (next <= LAST) result.push([next, LAST]);
    return CodePointSet.of(...result);
  }

  minus(other: CodePointSet): CodePointSet {
    return this.intersect(other.complement);
  }
}

function normalized(ranges: readonly CodePointRange[]): CodePointRange[] {
  const result: CodePointRange[] = [];
  for (const [first, last] of ranges.flatMap(withoutSurrogates).sort((a, b) => a[0] - b[0])) {
    const before = result.at(-1);
    if (before !== undefined && first <= before[1] + 1) {
      if (last > before[1]) result[result.length - 1] = [before[0], last];
    } else {
      result.push([first, last]);
    }
  }
  return result;
}

function withoutSurrogates([first, last]: CodePointRange): CodePointRange[] {
  if (first > last) return [];
  if (last < SURROGATES[0] || first > SURROGATES[1]) return [[first, last]];
  const parts: CodePointRange[] = [];
  if (first < SURROGATES[0]) parts.push([first, SURROGATES[0] - 1]);
  if (last > SURROGATES[1]) parts.push([SURROGATES[1] + 1, last]);
  return parts;
}
