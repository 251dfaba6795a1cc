import { describe, expect, test } from 'vitest';
import { GrammarError } from '../../../batcher/structured/grammar.ts';
import { compileStructure } from '../../../batcher/structured/grammar-compilation.ts';
import { faultOf, loadSchemas } from '../../../bench/structured/schema-run.ts';
import { BYTES, fits, randomFrom, randomText, schemaTable } from './structures.ts';

const cases = await loadSchemas();
const kept = cases.filter(({ refusedAt }) => refusedAt === undefined);

describe('the hundred schemas', () => {
  test.each(kept.map(one => [one.name, one.schema] as const))('%s: whatever fits its grammar is valid', (_name, schema) => {
    const table = schemaTable(schema);
    const random = randomFrom(7);
    let count = 0;
    for (let i = 0; i < 60; i++) {
      const text = randomText(table, random);
      if (text === undefined) continue;
      count++;
      expect(faultOf(schema, text)).toBeUndefined();
    }
    expect(count).toBeGreaterThan(0);
  });
});

function refusal(schema: unknown): { where: string | undefined; message: string } {
  try {
    compileStructure({ kind: 'schema', param: 'response_format', schema }, BYTES);
  } catch (error) {
    if (!(error instanceof GrammarError)) throw error;
    return error;
  }
  throw new Error('it was not refused');
}

const within = (schema: unknown) => ({ type: 'object', properties: { 'a/b': { type: 'array', items: schema } } });

describe('what cannot be held to is refused with its place', () => {
  test.each<[unknown, string]>([
    ...[
      'not',
      'if',
      'then',
      'else',
      'contains',
      'dependentRequired',
      'dependentSchemas',
      'unevaluatedItems',
      '$dynamicRef',
      'nullable',
    ].map((keyword): [unknown, string] => [{ [keyword]: {} }, keyword]),
    [{ uniqueItems: true }, 'uniqueItems'],
    [{ type: 'text' }, 'type'],
    [{ type: 'string', pattern: '(?=x)' }, 'pattern'],
    [{ type: 'string', pattern: 7 }, 'pattern'],
    [{ type: 'string', format: 'shoe-size' }, 'format'],
    [{ type: 'string', minLength: -1 }, 'minLength'],
    [{ type: 'string', maxLength: 1.5 }, 'maxLength'],
    [{ enum: 'red' }, 'enum'],
    [{ anyOf: [] }, 'anyOf'],
    [{ anyOf: {} }, 'anyOf'],
    [{ anyOf: [7] }, 'anyOf/0'],
    [{ allOf: [true, null] }, 'allOf/1'],
    [{ properties: { p: 'string' } }, 'properties/p'],
    [{ properties: [] }, 'properties'],
    [{ required: 'all' }, 'required'],
    [{ required: [1] }, 'required/0'],
    [{ $ref: '#/$defs/none' }, '$ref'],
    [{ $ref: 'other.json' }, '$ref'],
    [{ $ref: '#%zz' }, '$ref'],
    [{ $ref: '#none' }, '$ref'],
    [{ $id: 'x' }, '$id'],
    [{ multipleOf: -1 }, 'multipleOf'],
    [{ minimum: '1' }, 'minimum'],
    [{ unevaluatedProperties: { type: 'string' } }, 'unevaluatedProperties'],
    [{ oneOf: [{ type: 'integer' }, { type: 'number' }] }, 'oneOf/1'],
    [{ oneOf: [{ minLength: 3 }, { const: 5 }] }, 'oneOf/1'],
    [{ patternProperties: { '^a': {}, b$: {} } }, 'patternProperties/b$'],
  ])('%j', (schema, below) => {
    expect(refusal(within(schema)).where).toBe(`#/properties/a~1b/items/${below}`);
  });

  test('nothing that fits: the required part is named', () => {
    const impossible = { type: 'object', properties: { x: { type: 'string', minLength: 3, maxLength: 2 } }, required: ['x'] };
    expect(refusal({ type: 'object', properties: { outer: impossible }, required: ['outer'] })).toMatchObject({
      where: '#/properties/outer/properties/x',
    });
    for (const schema of [
      false,
      { enum: [] },
      { type: 'string', enum: [1, 2] },
      { type: 'integer', const: 'a' },
      { allOf: [{ type: 'string' }, { type: 'null' }] },
    ]) {
      expect(refusal(schema).message).toContain('no value fits');
    }
    // Without an end: no text is finite.
    expect(refusal({ type: 'object', properties: { next: { $ref: '#' } }, required: ['next'] }).message).toContain('nothing');
    expect(refusal({ $ref: '#' }).message).toContain('refer to themselves');
    expect(refusal({ anyOf: [{ $ref: '#' }, { type: 'null' }] }).message).toContain('begin with itself');
  });

  test('a property that can have no value is left out where it may be', () => {
    const table = schemaTable({ type: 'object', properties: { a: false, b: { type: 'null' } }, additionalProperties: false });
    expect(fits(table, '{"b":null}')).toBe(true);
    expect(fits(table, '{}')).toBe(true);
    expect(fits(table, '{"a":1}')).toBe(false);
  });

  test('case 20: a pattern that others fail to compile is obeyed', () => {
    const table = schemaTable({
      type: 'object',
      properties: { s: { type: 'string', pattern: '^hello there indeed\\!$' } },
      required: ['s'],
    });
    expect(fits(table, '{"s":"hello there indeed!"}')).toBe(true);
    expect(fits(table, '{"s":"hello"}')).toBe(false);
  });

  test('case 57: a pattern within the items of an array is the same as at the top', () => {
    const pattern = '^(\\d+|imap:[A-Za-z0-9_-]+)$';
    const items = { type: 'string', pattern };
    const inside = schemaTable({ type: 'object', properties: { ids: { type: 'array', minItems: 1, items } }, required: ['ids'] });
    const atTop = schemaTable(items);
    for (const [text, is] of [
      ['12', true],
      ['imap:a-b', true],
      ['imap:', false],
      ['x', false],
      ['', false],
    ] as const) {
      expect(fits(atTop, `"${text}"`)).toBe(is);
      expect(fits(inside, `{"ids":["${text}"]}`)).toBe(is);
    }
    const bad = { type: 'string', pattern: '^(?!x)' };
    expect(refusal(bad).message).toBe(refusal({ type: 'array', items: bad }).message);
  });
});

describe('what is written', () => {
  test('white space is bounded everywhere', () => {
    const table = schemaTable({ type: 'object', properties: { a: { type: 'integer' } }, required: ['a'] });
    for (const text of ['{"a":1}', '{"a": 1}', '{ "a": 1 }', '{\n  "a": 1\n}', '{\n\t"a": 1\n}'])
      expect(fits(table, text), text).toBe(true);
    for (const text of [
      '{  "a":1}',
      '{"a" :1}',
      '{"a":  1}',
      `{\n${' '.repeat(25)}"a":1}`,
      '{\n\n"a":1}',
      ' {"a":1}',
      '{"a":1} ',
      '{"a":1}\n',
    ]) {
      expect(fits(table, text), JSON.stringify(text)).toBe(false);
    }
  });

  test('strings are JSON: controls are escaped, surrogates come in pairs', () => {
    const table = schemaTable({ type: 'string' });
    for (const text of ['"a"', '"\\n"', '"\\u00e9"', '"\\ud83d\\ude00"', '"😀"', '"\\/"']) expect(fits(table, text), text).toBe(true);
    for (const text of ['"\n"', '"\u0000"', '"\\x"', '"\\ud83d"', '"\\ude00"', '"\\u12"', '"', '"a" '])
      expect(fits(table, text), text).toBe(false);
  });

  test('lengths count characters, however they are written', () => {
    const table = schemaTable({ type: 'string', minLength: 2, maxLength: 2 });
    for (const text of ['"ab"', '"\\nb"', '"😀b"', '"\\ud83d\\ude00\\u0041"']) expect(fits(table, text), text).toBe(true);
    for (const text of ['"a"', '"abc"', '"😀"']) expect(fits(table, text), text).toBe(false);
  });

  test('long bounds cost no more than short ones', () => {
    const table = schemaTable({ type: 'string', minLength: 3_000, maxLength: 10_000 });
    for (const [length, is] of [
      [2_999, false],
      [3_000, true],
      [3_001, true],
      [9_999, true],
      [10_000, true],
      [10_001, false],
    ] as const) {
      expect(fits(table, `"${'x'.repeat(length)}"`), String(length)).toBe(is);
    }
    const automaton = compileStructure({ kind: 'schema', param: 'p', schema: { type: 'string', maxLength: 16_000 } }, BYTES);
    expect(automaton.stateCount).toBeLessThan(2_000);
  });

  test('a name that is described is not written again among the others, however it is spelled', () => {
    const table = schemaTable({ type: 'object', properties: { ab: { type: 'null' } }, additionalProperties: { type: 'integer' } });
    expect(fits(table, '{"ab":null,"abc":1,"a":2}')).toBe(true);
    for (const text of ['{"ab":1}', '{"\\u0061b":1}', '{"a\\u0062":1}']) expect(fits(table, text), text).toBe(false);
  });

  test('properties that nothing is said of are not written, unless the schema says that there may be others', () => {
    expect(fits(schemaTable({ type: 'object', properties: { a: { type: 'integer' } } }), '{"b":1}')).toBe(false);
    expect(fits(schemaTable({ type: 'object', properties: { a: { type: 'integer' } }, additionalProperties: true }), '{"b":[1]}')).toBe(
      true,
    );
    expect(fits(schemaTable({ type: 'object' }), '{"b":{"c":null}}')).toBe(true);
    expect(fits(schemaTable({ type: 'object', additionalProperties: false }), '{}')).toBe(true);
    expect(fits(schemaTable({ type: 'object', additionalProperties: false }), '{"b":1}')).toBe(false);
  });

  test('old forms: a list of items, exclusive bounds as booleans', () => {
    const tuple = schemaTable({ type: 'array', items: [{ type: 'integer' }, { type: 'null' }], additionalItems: false });
    expect(['[]', '[1]', '[1,null]', '[1,null,2]', '[null]'].filter(text => fits(tuple, text))).toEqual(['[]', '[1]', '[1,null]']);
    const draft4 = schemaTable({ type: 'integer', minimum: 0, exclusiveMinimum: true, maximum: 3, exclusiveMaximum: true });
    expect(['0', '1', '2', '3'].filter(text => fits(draft4, text))).toEqual(['1', '2']);
  });
});

describe('bombs', () => {
  const chain = (count: number, link: (next: string) => object) => ({
    $defs: Object.fromEntries(
      Array.from({ length: count }, (_, i) => [`d${i}`, i === count - 1 ? { type: 'string' } : link(`#/$defs/d${i + 1}`)]),
    ),
    $ref: '#/$defs/d0',
  });

  test('references to references are followed once each', () => {
    const both = chain(100, next => ({ type: 'object', properties: { a: { $ref: next }, b: { $ref: next } }, required: ['a', 'b'] }));
    expect(() => schemaTable(both)).not.toThrow();
  });

  test.each([
    ['allOf of references, five by five', chain(14, next => ({ allOf: Array.from({ length: 5 }, () => ({ $ref: next })) }))],
    [
      'allOf of anyOf, multiplied out',
      { allOf: Array.from({ length: 12 }, (_, i) => ({ anyOf: [{ minLength: i }, { maxLength: 99 - i }, { const: `${i}` }] })) },
    ],
    [
      'anyOf in anyOf',
      Array.from({ length: 14 }).reduce<object>(inner => ({ anyOf: [inner, { ...inner, minLength: 1 }] }), { type: 'string' }),
    ],
    [
      'too many properties',
      { type: 'object', properties: Object.fromEntries(Array.from({ length: 9_000 }, (_, i) => [`property_${i}`, {}])) },
    ],
    ['patterns that multiply', { type: 'string', allOf: [1, 2, 3, 4, 5, 6].map(n => ({ pattern: `a.{${n * 7}}b` })), maxLength: 200 }],
    [
      'a property for every count',
      { type: 'object', properties: Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`p${i}`, {}])), minProperties: 100 },
    ],
  ])('%s: refused', (_name, schema) => {
    expect(refusal(schema).message).toMatch(/more than|too large/);
  });
});
