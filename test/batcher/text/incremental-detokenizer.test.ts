import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { IncrementalDetokenizer } from '../../../batcher/text/incremental-detokenizer.ts';
import { Utf8Decoder } from '../../../batcher/text/utf8-decoder.ts';

/** Bytes that come near to every rule of UTF-8: whole characters, pieces of them, overlong forms, surrogates, beyond the last. */
const bytes = fc
  .array(
    fc.oneof(
      fc.string({ unit: 'binary', maxLength: 3 }).map(text => [...new TextEncoder().encode(text)]),
      fc.integer({ min: 0, max: 255 }).map(byte => [byte]),
      fc.constantFrom(
        [0xc0, 0x80],
        [0xe0, 0x80, 0x80],
        [0xed, 0xa0, 0x80],
        [0xf4, 0x90, 0x80, 0x80],
        [0xf0, 0x9f, 0x98],
        [0xef, 0xbb, 0xbf],
        [0xf0, 0x80],
        [0xf5],
      ),
    ),
    { maxLength: 12 },
  )
  .map(pieces => pieces.flat());

function whole(all: readonly number[]): string {
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(Uint8Array.from(all));
}

/** Tokens are the pieces of `all` between the cuts; the token id is the index of the piece. */
function split(all: readonly number[], cuts: readonly number[]): Uint8Array[] {
  const at = [...new Set([0, ...cuts.map(cut => cut % (all.length + 1)), all.length])].sort((a, b) => a - b);
  return at.slice(1).map((end, i) => Uint8Array.from(all.slice(at[i]!, end)));
}

describe('Utf8Decoder', () => {
  test('is TextDecoder, byte by byte', () => {
    fc.assert(
      fc.property(bytes, all => {
        const decoder = new Utf8Decoder();
        expect(all.map(byte => decoder.push(byte)).join('') + decoder.flush()).toBe(whole(all));
      }),
      { numRuns: 2000, seed: 8 },
    );
  });

  test('every pair of bytes', () => {
    for (let first = 0x7e; first < 256; first++) {
      for (let second = 0x7e; second < 256; second++) {
        const decoder = new Utf8Decoder();
        expect(decoder.push(first) + decoder.push(second) + decoder.flush()).toBe(whole([first, second]));
      }
    }
  });
});

describe('IncrementalDetokenizer', () => {
  test('any split into tokens gives the decoding of the whole', () => {
    fc.assert(
      fc.property(bytes, fc.array(fc.nat()), (all, cuts) => {
        const tokens = split(all, cuts);
        const detokenizer = new IncrementalDetokenizer(id => tokens[id]!);
        const text = tokens.map((_, id) => detokenizer.push(id)).join('');
        expect(text + detokenizer.flush()).toBe(whole(all));
      }),
      { numRuns: 1000, seed: 9 },
    );
  });

  test('case 53: characters spread over tokens come whole, never U+FFFD', () => {
    const all = [...new TextEncoder().encode('😀漢字é')];
    const detokenizer = new IncrementalDetokenizer(id => Uint8Array.of(all[id]!));
    expect(all.map((_, id) => detokenizer.push(id)).filter(text => text !== '')).toEqual(['😀', '漢', '字', 'é']);
    expect(detokenizer.flush()).toBe('');
  });

  test('taken up in the middle of a character', () => {
    const all = [...new TextEncoder().encode('a😀b')];
    const tokenBytes = (id: number): Uint8Array => Uint8Array.of(all[id]!);
    for (let at = 0; at <= all.length; at++) {
      const detokenizer = new IncrementalDetokenizer(tokenBytes);
      const before = all.slice(0, at).map((_, id) => detokenizer.push(id));
      const again = new IncrementalDetokenizer(tokenBytes);
      expect(all.slice(0, at).map((_, id) => again.push(id))).toEqual(before);
      const rest = all.slice(at).map((_, i) => again.push(at + i));
      expect([...before, ...rest].join('')).toBe('a😀b');
    }
  });
});
