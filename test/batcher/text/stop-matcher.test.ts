import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { StopMatcher } from '../../../batcher/text/stop-matcher.ts';

/** By its definition: cut before the stop string that ends first, of those the longest. */
function cut(text: string, stops: readonly string[]): { text: string; stopped: boolean; found?: string } {
  for (let end = 1; end <= text.length; end++) {
    const ending = stops.filter(stop => text.slice(0, end).endsWith(stop));
    const found = ending.sort((a, b) => b.length - a.length)[0];
    if (found !== undefined) return { text: text.slice(0, end - found.length), stopped: true, found };
  }
  return { text, stopped: false };
}

function pieces(text: string, cuts: readonly number[]): string[] {
  // Whole characters, as the detokenizer gives them.
  const characters = [...text];
  const at = [...new Set([0, ...cuts.map(one => one % (characters.length + 1)), characters.length])].sort((a, b) => a - b);
  return at.slice(1).map((end, i) => characters.slice(at[i]!, end).join(''));
}

const word = (maxLength: number) =>
  fc.array(fc.constantFrom('a', 'b', 'c', '😀', '😁'), { minLength: 1, maxLength }).map(letters => letters.join(''));

describe('StopMatcher', () => {
  test('any split gives what the whole text gives, and never lets out a piece of the stop string', () => {
    fc.assert(
      fc.property(word(40), fc.array(word(6), { maxLength: 4 }), fc.array(fc.nat()), (text, stops, cuts) => {
        const matcher = new StopMatcher(stops);
        const expected = cut(text, stops);
        let out = '';
        for (const piece of pieces(text, cuts)) {
          out += matcher.push(piece).text;
          // Never ahead of the truth, and never held back for nothing.
          expect(expected.text.startsWith(out)).toBe(true);
          if (!matcher.isStopped && stops.length === 0) expect(matcher.heldLength).toBe(0);
        }
        expect(matcher.isStopped).toBe(expected.stopped);
        expect(matcher.found).toBe(expected.found);
        expect(out + (matcher.isStopped ? '' : matcher.end())).toBe(expected.text);
        expect(matcher.end()).toBe('');
      }),
      { numRuns: 3000, seed: 10 },
    );
  });

  test('holds back exactly the longest end that may become a stop string', () => {
    fc.assert(
      fc.property(word(30), fc.array(word(6), { minLength: 1, maxLength: 4 }), (text, stops) => {
        fc.pre(!cut(text, stops).stopped);
        const matcher = new StopMatcher(stops);
        matcher.push(text);
        const ends = [...text].map((_, i, all) => all.slice(i).join('')).filter(end => stops.some(stop => stop.startsWith(end)));
        expect(matcher.heldLength).toBe(Math.max(0, ...ends.map(end => end.length)));
      }),
      { numRuns: 1000, seed: 11 },
    );
  });

  test('case 1: the start of a stop string is not sent before the rest decides', () => {
    const matcher = new StopMatcher(['DEFGHIJ']);
    const sent = ['A', 'B', 'C', 'D', 'E', 'FG', 'H', 'I', 'J', 'K'].map(piece => matcher.push(piece).text);
    expect(sent).toEqual(['A', 'B', 'C', '', '', '', '', '', '', '']);
    expect(matcher.isStopped).toBe(true);
  });

  test('a false start is let out when it fails', () => {
    const matcher = new StopMatcher(['DEFG']);
    expect(matcher.push('CDE')).toEqual({ text: 'C', stopped: false });
    expect(matcher.push('X')).toEqual({ text: 'DEX', stopped: false });
  });

  test('overlapping stop strings: the first complete one, of those that end together the longest', () => {
    expect(new StopMatcher(['abcd', 'bc']).push('xabcd')).toEqual({ text: 'xa', stopped: true });
    expect(new StopMatcher(['bc', 'abc']).push('xabc')).toEqual({ text: 'x', stopped: true });
    expect(new StopMatcher(['aab']).push('aaab')).toEqual({ text: 'a', stopped: true });
  });

  test('half a surrogate pair matches no character', () => {
    expect(new StopMatcher(['\u{de00}', '\u{d83d}']).push('a😀b')).toEqual({ text: 'a😀b', stopped: false });
  });

  test('a stop string of a hundred thousand characters', () => {
    const stop = `${'a'.repeat(100_000)}b`;
    const matcher = new StopMatcher([stop]);
    let length = 0;
    for (let i = 0; i < 200; i++) length += matcher.push('a'.repeat(1_000)).text.length;
    expect(length).toBe(100_000);
    expect(matcher.push('b')).toEqual({ text: '', stopped: true });
  });

  test('no stop strings, and empty ones, hold nothing back', () => {
    for (const stops of [[], ['']]) expect(new StopMatcher(stops).push('abc')).toEqual({ text: 'abc', stopped: false });
  });
});
