import { describe, expect, test } from 'vitest';
import { CompiledGrammar } from '../../../batcher/structured/compiled-grammar.ts';
import { GrammarError } from '../../../batcher/structured/grammar.ts';
import { compileStructure } from '../../../batcher/structured/grammar-compilation.ts';
import { GrammarMatcher } from '../../../batcher/structured/grammar-matcher.ts';
import { Xgrammar } from '../../../bench/structured/xgrammar.ts';
import { fits, randomFrom, tableOf, vocabularyOf } from './structures.ts';

const ebnf = (grammar: string) => tableOf({ kind: 'grammar', grammar });

describe('what a grammar matches', () => {
  test.each([
    ['root ::= "yes" | "no"', ['yes', 'no'], ['', 'y', 'yesno']],
    ['root ::= \'a\' [b-d]+ "\\n"', ['ab\n', 'abcd\n'], ['a\n', 'ae\n']],
    ['root ::= item{2,3}\nitem ::= [0-9] ","?', ['12', '1,2,3'], ['1', '1234']],
    ['root ::= [^"\\\\]* "\\u00e9" "\\x41"', ['éA', 'xyéA'], ['"éA', 'é']],
    ['root ::= ( "a" | b )* # comment\nb ::= "b"  "c"', ['', 'abc', 'bcbc'], ['b', 'c']],
    ['root ::= . "x"', ['ax', '😀x'], ['x']],
    ['root ::= expr\nexpr ::= expr "+" term | term\nterm ::= [0-9]+ | "(" expr ")"', ['1', '1+2+3', '(1+2)+3'], ['+1', '1+', '(1']],
    [
      'root ::= "{" pairs? "}"\npairs ::= pair ("," pair)*\npair ::= [a-z]+ ":" (root | [0-9]+)',
      ['{}', '{a:1,b:{c:2}}'],
      ['{a}', '{a:1,}'],
    ],
  ] as const)('%s', (grammar, matching, others) => {
    const table = ebnf(grammar);
    for (const text of matching) expect(fits(table, text), text).toBe(true);
    for (const text of others) expect(fits(table, text), text).toBe(false);
  });

  test.each([
    ['start ::= "a"', "no rule named 'root'", undefined],
    ['root ::= a', "no rule named 'a'", undefined],
    ['root ::= "a', 'not closed', 'line 1, column 12'],
    ['root ::= "a"\nroot ::= "b"', 'there twice', 'line 2, column 10'],
    ['root ::= ("a"', 'not closed', 'line 1, column 14'],
    ['root ::= "a"\n\nwhat is this', "no rule named 'what'", undefined],
    ['root ::= "a"\n)', "as 'name ::= …'", 'line 2, column 1'],
    ['root ::= [z-a]', 'wrong way round', 'line 1, column 14'],
    ['root ::= "\\xg0"', 'hexadecimal', 'line 1, column 13'],
    ['root ::= "\\ud800"', 'no character', 'line 1, column 17'],
    ['root ::= "a"{3,1}', 'least count above', 'line 1, column 18'],
    ['root ::= "a"{9999}', 'more than 4096', 'line 1, column 19'],
    [`root ::= ${'('.repeat(70)}`, 'nested deeper', 'line 1, column 74'],
    ['root ::= a "x"\na ::= b | "y"\nb ::= a "z" | "w"', 'left recursion', undefined],
    ['root ::= a?  root "x" | "y"\na ::= "a"', 'left recursion', undefined],
    ['root ::= "a" root', 'nothing', undefined],
    ['root ::= (=[a-z]) "a"', 'look-ahead', 'line 1, column 12'],
    [Array.from({ length: 600 }, (_, i) => `r${i} ::= "a"`).join('\n'), 'more than 500 rules', 'line 501, column 10'],
  ])('%s is refused in words', (grammar, words, where) => {
    let thrown: unknown;
    try {
      ebnf(grammar);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(GrammarError);
    expect((thrown as GrammarError).message).toContain(words);
    expect((thrown as GrammarError).where).toBe(where);
  });

  test('one that is ambiguous without measure is refused, however it is nested', () => {
    const rules = Array.from({ length: 300 }, (_, i) => `r${i} ::= r${i + 1} r${i + 1}?`);
    expect(() => ebnf(['root ::= r0', ...rules, 'r300 ::= "x"'].join('\n'))).toThrow('too ambiguous');
  });
});

/** Words that lie across what grammars tell apart. */
const WORDS = [
  'ab',
  'abc',
  '":',
  '", "',
  '{"',
  '"}',
  '}}',
  '12',
  '123',
  '+1',
  '((',
  '))',
  'true',
  'e"',
  ' "',
  'é',
  '日本',
  'SELECT ',
  'col_',
  '_1',
];

/** Tokens of single bytes that no character begins with; XGrammar lets them through in classes that exclude characters. */
const NO_UTF8 = new Set([0xc0, 0xc1, 0xf5, 0xf6, 0xf7].map(byte => byte + 1));

describe('masks are those of XGrammar', () => {
  test.each([
    'root ::= "yes" | "no" | "ab"+',
    'root ::= expr\nexpr ::= term ("+" term)*\nterm ::= [0-9]+ | "(" expr ")"',
    'root ::= object\nobject ::= "{" (pair ("," pair)*)? "}"\npair ::= string ":" value\nstring ::= "\\"" [^"\\\\]* "\\""\nvalue ::= string | object | [0-9]+ | "true"',
    'root ::= "SELECT " column " " column?\ncolumn ::= "col_1" | "col_12" | "ab"',
    'root ::= ("a" | "ab" | "abc")* "12"?',
    'root ::= [^a-c]{2,5} "日本"?',
    'root ::= s\ns ::= "(" s ")" | "a" s "b" | "ab" | ""',
  ])('%s', async grammar => {
    const vocabulary = vocabularyOf(WORDS);
    const oracleOf = await (await Xgrammar.open(vocabulary)).grammar(grammar);
    const compiled = new CompiledGrammar(compileStructure({ kind: 'grammar', param: 'p', grammar }, vocabulary), vocabulary);
    const random = randomFrom(3);
    let compared = 0;
    for (let run = 0; run < 12; run++) {
      const matcher = new GrammarMatcher(compiled);
      const oracle = await oracleOf();
      for (let step = 0; step < 25; step++) {
        const { words } = matcher.mask();
        const theirs = await oracle.getNextTokenBitmask();
        const mine = idsOf(words, vocabulary.vocabSize);
        expect(mine).toEqual(idsOf(theirs, vocabulary.vocabSize).filter(id => !NO_UTF8.has(id)));
        compared++;
        const whole = mine.filter(id => id <= 128 || id > 256);
        const id = whole[Math.floor(random() * whole.length)]!;
        matcher.accept(id);
        expect(oracle.acceptToken(id)).toBe(true);
        if (id === 0 || matcher.isComplete) break;
      }
    }
    expect(compared).toBeGreaterThan(12);
  });
});

function idsOf(words: ArrayLike<number>, count: number): number[] {
  return Array.from({ length: count }, (_, id) => id).filter(id => ((words[id >>> 5]! >>> (id & 31)) & 1) === 1);
}
