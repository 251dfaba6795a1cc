import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { GrammarError } from '../../../batcher/structured/grammar.ts';
import { accepts, anyTextBut, intersection, ofLength } from '../../../batcher/structured/regex/character-graph.ts';
import { regexGraph } from '../../../batcher/structured/regex/regex-graph.ts';

/** Tried against the language's own regular expressions. */
const PATTERNS = [
  ...['abc', '^abc$', 'a|b|^c', '^(a|bc)*$', 'a.c', '^a+b?c*$', 'a{2}', '^a{2,}b$', '^a{1,3}$', '^$', '', 'x*', '(?:ab|ba)+c', '(?<n>a)b'],
  ...[
    '[abc]',
    '[^abc]',
    '[a-c-]',
    '[-a]',
    '[\\d_]',
    '\\w+ \\W',
    '^\\s*$',
    '\\D\\S',
    '[\\s\\S]b',
    'a$|^b',
    '(^a|b)c',
    '(a$|b)',
    '^^a$$',
    'a+?b*?c??',
  ],
  ...[
    '\\x61\\u0062',
    '\\u{63}',
    '\\cJ',
    '\\t|\\n|\\0',
    '\\.\\/\\-',
    '[\\]\\\\^]',
    '[.*]',
    '\\p{L}+',
    '^\\P{Lu}$',
    '\\p{Nd}',
    '[\\p{L}\\d]c',
    '\\u00e9|ü',
    '😀+',
    '[😀-😂]',
  ],
];
const TEXT = fc.string({ unit: fc.constantFrom(...'aabbccx0_ -.\n\t\\]^/éüÀ😀😁'.match(/./gsu)!), maxLength: 7 });

describe('regexGraph', () => {
  test.each(PATTERNS)('%s fits what the language’s own expression finds', pattern => {
    // A hyphen beside a class, and escapes of nothing, are for expressions without the flag only.
    const flags = /\\-|-\]|\[-/.test(pattern) ? '' : 'u';
    const anywhere = regexGraph(pattern, 'anywhere');
    const whole = regexGraph(pattern, 'whole');
    const [found, matched] = [new RegExp(pattern, flags), new RegExp(`^(?:${pattern})$`, flags)];
    fc.assert(
      fc.property(TEXT, text => {
        expect(accepts(anywhere, text), JSON.stringify(text)).toBe(found.test(text));
        expect(accepts(whole, text), JSON.stringify(text)).toBe(matched.test(text));
      }),
      { numRuns: 300 },
    );
  });

  test('an escape of nothing stands for the character, as without the u flag', () => {
    expect(accepts(regexGraph('^hello there indeed\\!$', 'anywhere'), 'hello there indeed!')).toBe(true);
  });

  test.each([
    ['(?=a)b', 'look-around'],
    ['(?<!a)b', 'look-around'],
    ['\\bword', 'word boundaries'],
    ['(a)\\1', 'back references'],
    ['\\k<n>', 'back references'],
    ['(ab', 'not closed'],
    ['ab)', 'parenthesis too many'],
    ['[ab', 'ends too early'],
    ['*a', 'nothing to repeat'],
    ['a**', 'nothing to repeat'],
    ['a{3,1}', 'least count above its most'],
    ['[z-a]', 'wrong way round'],
    ['\\p{Script=Greek}', 'general categories'],
    ['\\q', 'not supported'],
    ['a\\', 'ends too early'],
    ['^*', 'anchor cannot be repeated'],
    ['a{5000}', 'more than 4096 times'],
    ['(a{90}){90}', 'more than 8000 states'],
    ['('.repeat(80), 'nested deeper'],
    ['a'.repeat(5000), 'longer than'],
  ])('%s is refused in words', (pattern, words) => {
    expect(() => regexGraph(pattern, 'anywhere')).toThrow(GrammarError);
    expect(() => regexGraph(pattern, 'anywhere')).toThrow(words);
  });
});

describe('graphs combined', () => {
  test('an intersection has what both have', () => {
    const both = intersection(regexGraph('^[a-c]+$', 'anywhere'), regexGraph('b', 'anywhere'));
    fc.assert(
      fc.property(TEXT, text => {
        expect(accepts(both, text)).toBe(/^[a-c]+$/.test(text) && text.includes('b'));
      }),
    );
  });

  test('lengths count characters', () => {
    fc.assert(
      fc.property(TEXT, fc.nat(5), fc.nat(5), (text, least, more) => {
        const length = Array.from(text).length;
        expect(accepts(ofLength(regexGraph('', 'anywhere'), least, least + more), text)).toBe(length >= least && length <= least + more);
        expect(accepts(ofLength(regexGraph('', 'anywhere'), least, Number.POSITIVE_INFINITY), text)).toBe(length >= least);
      }),
    );
  });

  test('names that are excluded are, and nothing else is', () => {
    const names = ['a', 'ab', 'abc', 'xé', ''];
    const graph = anyTextBut(names);
    for (const name of names) expect(accepts(graph, name)).toBe(false);
    fc.assert(
      fc.property(TEXT, text => {
        expect(accepts(graph, text)).toBe(!names.includes(text));
      }),
    );
  });
});
