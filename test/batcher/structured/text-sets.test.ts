import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { CodePointSet } from '../../../batcher/structured/text/code-point-set.ts';
import { utf8Ranges } from '../../../batcher/structured/text/utf8-ranges.ts';

const codePoint = fc.oneof(
  fc.integer({ min: 0, max: 0x10ffff }),
  fc.constantFrom(0, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xd800, 0xdfff, 0xe000, 0xffff, 0x10000, 0x10ffff),
);
const ranges = fc
  .array(fc.tuple(codePoint, codePoint), { maxLength: 5 })
  .map(all => all.map(([a, b]) => [Math.min(a, b), Math.max(a, b)] as const));
const isSurrogate = (one: number) => one >= 0xd800 && one <= 0xdfff;

describe('CodePointSet', () => {
  test('has what its ranges have, surrogates never; and so do unions, intersections and complements', () => {
    fc.assert(
      fc.property(ranges, ranges, fc.array(codePoint, { minLength: 20, maxLength: 20 }), (first, second, points) => {
        const [a, b] = [CodePointSet.of(...first), CodePointSet.of(...second)];
        const isIn = (all: typeof first, one: number) => !isSurrogate(one) && all.some(([from, to]) => from <= one && one <= to);
        for (const one of points) {
          expect(a.has(one)).toBe(isIn(first, one));
          expect(a.union(b).has(one)).toBe(isIn(first, one) || isIn(second, one));
          expect(a.intersect(b).has(one)).toBe(isIn(first, one) && isIn(second, one));
          expect(a.minus(b).has(one)).toBe(isIn(first, one) && !isIn(second, one));
          expect(a.complement.has(one)).toBe(!isSurrogate(one) && !isIn(first, one));
        }
      }),
    );
  });

  test('its ranges ascend and do not touch', () => {
    fc.assert(
      fc.property(ranges, all => {
        const set = CodePointSet.of(...all);
        for (let i = 1; i < set.ranges.length; i++) expect(set.ranges[i]![0]).toBeGreaterThan(set.ranges[i - 1]![1] + 1);
      }),
    );
  });
});

describe('utf8Ranges', () => {
  const isSpelled = (sequences: ReturnType<typeof utf8Ranges>, bytes: Uint8Array) =>
    sequences.filter(one => one.length === bytes.length && one.every(([first, last], i) => first <= bytes[i]! && bytes[i]! <= last)).length;

  test('spells each character of the set in exactly one way, and no other', () => {
    fc.assert(
      fc.property(ranges, fc.array(codePoint, { minLength: 20, maxLength: 20 }), (all, points) => {
        const set = CodePointSet.of(...all);
        const sequences = utf8Ranges(set);
        for (const one of [...points, ...set.ranges.flat()]) {
          if (isSurrogate(one)) continue;
          expect(isSpelled(sequences, new TextEncoder().encode(String.fromCodePoint(one)))).toBe(set.has(one) ? 1 : 0);
        }
      }),
    );
  });

  test('of all characters: no surrogates, no overlong forms', () => {
    const sequences = utf8Ranges(CodePointSet.all);
    for (const bytes of [[0xed, 0xa0, 0x80], [0xc0, 0x80], [0xe0, 0x80, 0x80], [0xf4, 0x90, 0x80, 0x80], [0x80]]) {
      expect(isSpelled(sequences, Uint8Array.from(bytes))).toBe(0);
    }
  });
});
