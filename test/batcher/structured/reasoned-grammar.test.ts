/** Answers held to a form behind their reasoning, which is free. */
import { describe, expect, it } from 'vitest';
import type { CallStructure } from '../../../batcher/structured/calls/call-structure.ts';
import { compileStructure } from '../../../batcher/structured/grammar-compilation.ts';
import type { ReasonedStructure } from '../../../batcher/structured/reasoned-structure.ts';
import { DEAD, StateTable } from '../../../batcher/structured/state-table.ts';
import type { Structure } from '../../../shared/job.ts';
import { BYTES, fits, randomFrom, randomText } from './structures.ts';

const answer: Structure = { kind: 'choice', param: 'guided_choice', choices: ['yes', 'no'] };

function tableOf(more: Partial<ReasonedStructure>): StateTable {
  return new StateTable(compileStructure({ kind: 'reasoned', param: 'x', start: 'possible', answer, ...more }, BYTES));
}

describe('reasoning that may come', () => {
  const table = tableOf({});
  it.each([
    ['yes', true],
    ['<think>\nyes or no? </thinking> <</think>\n\nno', true],
    ['\n<think></think>yes', true],
    ['maybe', false],
    ['<think>yes', false],
    ['<think>x</think>', false],
    ['<think>x</think>maybe', false],
    ['<think>x</think>yes</think>', false],
    ['yes</think>no', false],
    ['<thing>x</think>yes', false],
    ['<think>x</think>\n\n\n\n\nyes', false],
  ] as const)('%j', (text, isFit) => {
    expect(fits(table, text)).toBe(isFit);
  });
});

describe('reasoning that has begun', () => {
  const table = tableOf({ start: 'begun' });
  it.each([
    ['hm 😀</think>yes', true],
    ['</think>\n\nno', true],
    ['yes', false],
    ['<think>x</think>no', true],
  ] as const)('%j', (text, isFit) => {
    expect(fits(table, text)).toBe(isFit);
  });

  it('at its end nothing but the end can come', () => {
    let state = table.start;
    for (const byte of new TextEncoder().encode('a</think>yes')) state = table.afterByte(state, byte);
    expect(table.mustEnd(state)).toBe(true);
  });
});

describe('marks that are control tokens', () => {
  it('are known by their numbers, and their spelling is text', () => {
    const table = tableOf({ openerTokenId: 300, closerTokenId: 301 });
    const control = (state: number, id: number) => table.afterControl(state, table.automaton.controls.indexOf(id));
    const bytes = (state: number, text: string) => new TextEncoder().encode(text).reduce((at, byte) => table.afterByte(at, byte), state);
    expect(bytes(table.start, '<think>')).toBe(DEAD);
    const within = bytes(control(table.start, 300), 'a </think> b');
    expect(table.mayEnd(within)).toBe(false);
    expect(table.mayEnd(bytes(control(within, 301), '\nyes'))).toBe(true);
  });
});

const schema = { type: 'object', properties: { a: { $ref: '#/$defs/b' } }, required: ['a'], $defs: { b: { enum: [1, 2] } } };
const calls = (of: unknown): CallStructure => ({
  ...{ kind: 'calls', param: 'tools', format: 'hermes', isForced: true, isParallel: true },
  functions: [{ name: 'f', param: 'tools[0]', schema: of }],
});

describe('behind it', () => {
  it.each<[string, ReasonedStructure['answer']]>([
    ['a schema', { kind: 'schema', param: 'x', schema }],
    ['a grammar with rules', { kind: 'grammar', param: 'x', grammar: 'root ::= "(" root ")" | "x"' }],
    ['calls', calls(schema)],
  ])('%s: the same texts fit as do without it', (_, form) => {
    const plain = new StateTable(compileStructure(form, BYTES));
    const reasoned = tableOf({ answer: form });
    const begun = tableOf({ answer: form, start: 'begun' });
    for (let seed = 0; seed < 40; seed++) {
      const random = randomFrom(seed);
      const whole = randomText(plain, random)!;
      const at = Math.floor(random() * whole.length);
      for (const text of [whole, whole.slice(0, at), `${whole.slice(0, at)}x${whole.slice(at + 1)}`, `${whole}!`]) {
        const isFit = fits(plain, text);
        expect(fits(reasoned, text), text).toBe(isFit);
        expect(fits(reasoned, `<think>a < b\n</think>${text}`), text).toBe(isFit);
        expect(fits(begun, `a < b\n</think>${text}`), text).toBe(isFit);
      }
      expect(fits(plain, whole)).toBe(true);
    }
  });

  it('what cannot be held to is told by its own place', () => {
    const bad = calls({ type: 'object', properties: { a: { not: {} } } });
    expect(() => tableOf({ answer: bad })).toThrow(expect.objectContaining({ where: '#/properties/a/not', param: 'tools[0]' }));
  });
});
