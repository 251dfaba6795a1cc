import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { CompiledGrammar } from '../../../batcher/structured/compiled-grammar.ts';
import { compileStructure } from '../../../batcher/structured/grammar-compilation.ts';
import { GrammarMatcher } from '../../../batcher/structured/grammar-matcher.ts';
import { SpelledVocabulary } from '../../../batcher/structured/spelled-vocabulary.ts';
import { DEAD, StateTable } from '../../../batcher/structured/state-table.ts';
import type { Structure } from '../../../shared/job.ts';
import { END, fits, randomFrom, tableOf, vocabularyOf } from './structures.ts';

const STRUCTURES: Structure[] = [
  { kind: 'json', param: 'p' },
  { kind: 'schema', param: 'p', schema: { type: 'array', items: { type: 'string', maxLength: 5 }, minItems: 2, maxItems: 300 } },
  {
    kind: 'schema',
    param: 'p',
    schema: { type: 'object', properties: { a: { type: 'string', pattern: '^[a-c]é*$' }, b: {} }, required: ['b'] },
  },
  { kind: 'regex', param: 'p', pattern: '.{3,20}|[ab]*<x>' },
  { kind: 'choice', param: 'p', choices: ['ab', 'abc', '[x]', 'é日本'] },
  { kind: 'grammar', param: 'p', grammar: 'root ::= "[" root* "]" | "a"' },
];
const word = fc.string({ unit: fc.constantFrom(...Array.from('ab cé日😀"\\{}[]:,0-.<x>\n')), minLength: 1, maxLength: 6 });

const isSet = (words: Uint32Array, id: number) => ((words[id >>> 5]! >>> (id & 31)) & 1) === 1;

describe('masks', () => {
  test.each(STRUCTURES)('of $kind have each token that leads on, and no other, whatever the vocabulary', structure => {
    fc.assert(
      fc.property(fc.array(word, { maxLength: 40 }), fc.nat(), (words, seed) => {
        const vocabulary = vocabularyOf(words);
        const compiled = new CompiledGrammar(compileStructure(structure, vocabulary), vocabulary);
        const matcher = new GrammarMatcher(compiled);
        const table = new StateTable(compileStructure(structure, vocabulary));
        const random = randomFrom(seed);
        let state = table.start;
        for (let step = 0; step < 30 && !matcher.isComplete; step++) {
          const mask = matcher.mask();
          const allowed: number[] = [];
          for (let id = 0; id < vocabulary.vocabSize; id++) {
            const isAllowed = id === END ? table.mayEnd(state) : stateAfter(table, state, vocabulary.bytesOf(id)) !== DEAD;
            expect(isSet(mask.words, id), `token ${id}`).toBe(isAllowed);
            if (isAllowed) allowed.push(id);
          }
          expect(mask.count).toBe(allowed.length);
          const id = allowed[Math.floor(random() * allowed.length)]!;
          matcher.accept(id);
          if (id === END) return;
          state = stateAfter(table, state, vocabulary.bytesOf(id));
        }
      }),
      { numRuns: 12 },
    );
  });

  test('a vocabulary that cannot write a byte leads nowhere where it would be needed', () => {
    const spelled = ['', 'a', 'b', '"', 'ab', 'c"'].map(text => new TextEncoder().encode(text));
    const vocabulary = new SpelledVocabulary({ vocabSize: 6, endTokenIds: [0], tokenBytes: id => spelled[id]! });
    const choices = (...texts: string[]): Structure => ({ kind: 'choice', param: 'p', choices: texts });
    expect(() => compileStructure(choices('xyz'), vocabulary)).toThrow('nothing that the model can write');
    const automaton = compileStructure(choices('abx', 'bab'), vocabulary);
    const matcher = new GrammarMatcher(new CompiledGrammar(automaton, vocabulary));
    expect(isSet(matcher.mask().words, 1)).toBe(false);
    expect(isSet(matcher.mask().words, 2)).toBe(true);
  });
});

describe('a matcher', () => {
  const structure: Structure = {
    kind: 'schema',
    param: 'p',
    schema: { type: 'object', properties: { a: { type: 'string' } }, required: ['a'] },
  };
  const vocabulary = vocabularyOf(['{"a"', '": "', 'xy', '"}']);
  const compiled = new CompiledGrammar(compileStructure(structure, vocabulary), vocabulary);
  const idsOf = (text: string) => Array.from(new TextEncoder().encode(text), byte => byte + 1);

  test('stands where its tokens alone have brought it', () => {
    const one = new GrammarMatcher(compiled);
    const other = new GrammarMatcher(compiled);
    for (const id of [257, ...idsOf(': "'), 259, ...idsOf('é')]) one.accept(id);
    for (const id of idsOf('{"a": "xyé')) other.accept(id);
    expect([...one.mask().words]).toEqual([...other.mask().words]);
  });

  test('is complete when nothing can follow, and throws for what does not fit', () => {
    const one = new GrammarMatcher(compiled);
    expect(() => one.accept(END)).toThrow('cannot end');
    expect(() => one.accept(1 + 'x'.charCodeAt(0))).toThrow('does not fit');
    for (const id of [257, ...idsOf(':"z')]) one.accept(id);
    expect(one.isComplete).toBe(false);
    one.accept(260);
    expect(one.isComplete).toBe(true);
    one.accept(END);
    expect(() => one.accept(END)).toThrow('behind the end');
  });

  test('tells how many drafts fit, and changes nothing by it', () => {
    const one = new GrammarMatcher(compiled);
    const before = [...one.mask().words];
    expect(one.fitting([257, ...idsOf(':"'), 259, 257])).toBe(4);
    expect(one.fitting([259])).toBe(0);
    one.prepare([257, 259]);
    expect([...one.mask().words]).toEqual(before);
  });
});

describe('states', () => {
  test('are taken over by a new table when the old one is full', () => {
    const table = tableOf({ kind: 'json' });
    const fresh = new StateTable(table.automaton);
    const deep = '{"a":[{"b":'.repeat(400);
    let state = table.start;
    for (const byte of new TextEncoder().encode(deep)) state = table.afterByte(state, byte);
    let adopted = fresh.adopt(table, state);
    for (const byte of new TextEncoder().encode(`1${'}]}'.repeat(400)}`)) {
      state = table.afterByte(state, byte);
      adopted = fresh.afterByte(adopted, byte);
    }
    expect([table.mustEnd(state), fresh.mustEnd(adopted)]).toEqual([true, true]);
  });

  test('of a right recursion do not grow with the text', () => {
    const table = tableOf({ kind: 'grammar', grammar: 'root ::= "x" root | "y"' });
    expect(fits(table, `${'x'.repeat(5_000)}y`)).toBe(true);
    expect(table.stateCount).toBeLessThan(8);
  });

  test('what a grammar keeps is bounded, and answers under way go on', () => {
    const vocabulary = vocabularyOf();
    const compiled = new CompiledGrammar(compileStructure({ kind: 'json', param: 'p' }, vocabulary), vocabulary);
    const matcher = new GrammarMatcher(compiled);
    let most = 0;
    for (const byte of new TextEncoder().encode('{"a":'.repeat(12_000))) {
      matcher.mask();
      matcher.accept(byte + 1);
      most = Math.max(most, compiled.bytes);
    }
    for (const byte of new TextEncoder().encode(`1${'}'.repeat(12_000)}`)) matcher.accept(byte + 1);
    expect(matcher.isComplete).toBe(true);
    expect(most).toBeLessThan(24 * 2 ** 20);
  });
});

function stateAfter(table: StateTable, state: number, bytes: Uint8Array): number {
  if (bytes.length === 0) return DEAD;
  let next = state;
  for (const byte of bytes) next = table.afterByte(next, byte);
  return next;
}
