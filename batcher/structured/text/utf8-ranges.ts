/** Utf8Ranges: the UTF-8 of a set of code points, as sequences of byte ranges; each sequence stands for exactly the texts that it spells. */
import type { CodePointSet } from './code-point-set.ts';

export type ByteRange = readonly [first: number, last: number];

/** Last code point of one, two, three and four bytes. */
const LENGTH_ENDS = [0x7f, 0x7ff, 0xffff, 0x10ffff];

export function utf8Ranges(set: CodePointSet): ByteRange[][] {
  const sequences: ByteRange[][] = [];
  for (const [first, last] of set.ranges) {
    let from = first;
    for (const [index, end] of LENGTH_ENDS.entries()) {
      if (from > last) break;
      if (from > end) continue;
      split(from, Math.min(last, end), index + 1, sequences);
      from = end + 1;
    }
  }
  return sequences;
}

/** Cuts where a later byte does not run through all of its values, so that every sequence is a plain product of ranges. */
function split(first: number, last: number, length: number, into: ByteRange[][]): void {
  for (let trailing = 1; trailing < length; trailing++) {
    const mask = (1 << (6 * trailing)) - 1;
    if ((first & ~mask) === (last & ~mask)) continue;
    if ((first & mask) !== 0) {
      split(first, first | mask, length, into);
      split((first | mask) + 1, last, length, into);
      return;
    }
    if ((last & mask) !== mask) {
      split(first, (last & ~mask) - 1, length, into);
      split(last & ~mask, last, length, into);
      return;
    }
  }
  const low = encode(first, length);
  const high = encode(last, length);
  into.push(low.map((byte, index) => [byte, high[index]!]));
}

function encode(codePoint: number, length: number): number[] {
  if (length === 1) return [codePoint];
  const bytes: number[] = [];
  let rest = codePoint;
  for (let i = 1; i < length; i++) {
    bytes.unshift(0x80 | (rest & 0x3f));
    rest >>= 6;
  }
  bytes.unshift(((0xf00 >> length) & 0xff) | rest);
  return bytes;
}
