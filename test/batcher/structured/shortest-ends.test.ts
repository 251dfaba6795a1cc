/** How near the end of an answer is: never told nearer than it is, and what is told can be kept to from every place. */
import { describe, expect, test } from 'vitest';
import { CompiledGrammar } from '../../../batcher/structured/compiled-grammar.ts';
import { compileStructure } from '../../../batcher/structured/grammar-compilation.ts';
import { GrammarMatcher } from '../../../batcher/structured/grammar-matcher.ts';
import { FAR } from '../../../batcher/structured/shortest-ends.ts';
import type { SpelledVocabulary } from '../../../batcher/structured/spelled-vocabulary.ts';
import { DEAD, type StateTable } from '../../../batcher/structured/state-table.ts';
import type { Structure } from '../../../shared/job.ts';
import { BYTES, END, randomFrom, schemaTable, tableOf, vocabularyOf } from './structures.ts';

/** The fewest bytes to an end, by looking at all of them in the order of their length. */
function fewestBytes(table: StateTable, from: number): number {
  const seen = new Set([from]);
  let reached = [from];
  for (let length = 0; reached.length > 0; length++) {
    if (reached.some(state => table.mayEnd(state))) return length;
    const next = new Set<number>();
    for (const state of reached) for (let byte = 0; byte < 256; byte++) next.add(table.afterByte(state, byte));
    reached = [...next].filter(state => state !== DEAD && !seen.has(state));
    for (const state of reached) seen.add(state);
  }
  return FAR;
}

const PERSON = {
  type: 'object',
  properties: { name: { type: 'string' }, ages: { type: 'array', items: { type: 'integer' }, minItems: 2 } },
  required: ['name', 'ages'],
  additionalProperties: false,
};
const TREE = {
  type: 'object',
  properties: { children: { type: 'array', items: { $ref: '#' }, minItems: 1 } },
  additionalProperties: false,
};

const STRUCTURES: Record<string, Structure> = {
  'an expression': { kind: 'regex', param: 'p', pattern: '(?:abc|d{4,9})+(?:xy|z{3})' },
  'texts beyond ASCII': { kind: 'regex', param: 'p', pattern: '[\u{e4}\u{4e00}]{3}' },
  'some texts': { kind: 'choice', param: 'p', choices: ['yes', 'no', 'nothing of the kind'] },
  'any object': { kind: 'json', param: 'p' },
  'an object': { kind: 'schema', param: 'p', schema: PERSON },
  'a tree': { kind: 'schema', param: 'p', schema: TREE },
  'a list of lists': { kind: 'grammar', param: 'p', grammar: 'root ::= "(" (root | "x")+ ")" | "[" "a"{5} "]"' },
};

describe('the tokens to the end', () => {
  test.each(Object.entries(STRUCTURES))('of %s are the fewest, where tokens are bytes', (_, structure) => {
    const table = tableOf(structure);
    const random = randomFrom(7);
    for (let walk = 0; walk < 12; walk++) {
      let state = table.start;
      for (let step = 0; step < 20; step++) {
        expect(table.tokensToEnd(state)).toBe(fewestBytes(table, state));
        const from = state;
        const next = Array.from({ length: 256 }, (_, byte) => table.afterByte(from, byte)).filter(one => one !== DEAD);
        if (next.length === 0) break;
        state = next[Math.floor(random() * next.length)]!;
      }
    }
  });

  test('count a text that must follow by the tokens that spell it', () => {
    const vocabulary = vocabularyOf(['"name', '":', '"ages', 'name"']);
    // {"name":"","ages":[0,0]}
    const bytes = schemaTable(PERSON);
    expect(bytes.tokensToEnd(bytes.start)).toBe(24);
    const words = tableOf({ kind: 'schema', schema: PERSON }, vocabulary);
    expect(words.tokensToEnd(words.start)).toBe(14);
  });

  test('are far where no answer is that short', () => {
    const rows = { type: 'array', minItems: 4_000, items: { type: 'array', minItems: 4_000, items: { type: 'null' } } };
    const table = schemaTable(rows);
    expect(table.tokensToEnd(table.start)).toBe(FAR);
    expect(table.tokensToEnd(DEAD)).toBe(FAR);
  });
});

describe('whoever keeps to the tokens behind which the rest suffices', () => {
  const words = vocabularyOf([
    '"name":',
    '":',
    '"ages',
    '{"',
    '[[',
    ']]',
    '","',
    'abc',
    'dd',
    'no',
    'thing',
    ' of',
    'children',
    '[{"',
    '}]',
    'xy',
  ]);
  const vocabularies: Record<string, SpelledVocabulary> = { bytes: BYTES, words };

  test.each(Object.entries(STRUCTURES))('ends %s in time, from wherever it was', (_, structure) => {
    for (const [name, vocabulary] of Object.entries(vocabularies)) {
      const grammar = new CompiledGrammar(compileStructure(structure, vocabulary), vocabulary);
      const random = randomFrom(11);
      for (let walk = 0; walk < 30; walk++) {
        const matcher = new GrammarMatcher(grammar);
        for (let step = 0; step < walk && !matcher.isComplete; step++) matcher.accept(drawn(matcher.mask().words, random));
        const room = matcher.tokensToEnd + Math.floor(random() * 3);
        let count = 0;
        for (; !matcher.isComplete && count < room; count++) {
          const mask = matcher.closingMask(room - count - 1);
          expect(mask, `${name}: ${room - count} tokens left of ${room}`).toBeDefined();
          matcher.accept(drawn(mask!.words, random));
          expect(matcher.tokensToEnd).toBeLessThanOrEqual(room - count - 1);
        }
        expect(matcher.tokensToEnd).toBe(0);
      }
    }
  });

  test('finds none where the end is further off', () => {
    const matcher = new GrammarMatcher(new CompiledGrammar(compileStructure(STRUCTURES['some texts']!, BYTES), BYTES));
    expect(matcher.closingMask(0)).toBeUndefined();
    expect(matcher.tokensToEndAfter(END)).toBe(0);
  });
});

function drawn(words: Uint32Array, random: () => number): number {
  const ids = Array.from({ length: words.length * 32 }, (_, id) => id).filter(id => (words[id >>> 5]! >>> (id & 31)) & 1);
  return ids[Math.floor(random() * ids.length)]!;
}
