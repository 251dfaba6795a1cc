import { afterAll, describe, expect, test } from 'vitest';
import { GrammarError } from '../../../batcher/structured/grammar.ts';
import { GrammarCache, type GrammarCacheOptions } from '../../../batcher/structured/grammar-cache.ts';
import { compileStructure } from '../../../batcher/structured/grammar-compilation.ts';
import { GrammarCompiler } from '../../../batcher/structured/grammar-compiler.ts';
import type { AnswerForm } from '../../../batcher/structured/reasoned-structure.ts';
import type { Structure } from '../../../shared/job.ts';
import { BYTES } from './structures.ts';

const choice = (text: string): Structure => ({ kind: 'choice', param: 'guided_choice', choices: [text] });

function cacheOf(bounds: Partial<GrammarCacheOptions> = {}) {
  const compiled: AnswerForm[] = [];
  const cache = new GrammarCache({
    vocabulary: BYTES,
    maxCount: 3,
    maxBytes: 2 ** 30,
    compile: async structure => {
      compiled.push(structure);
      return compileStructure(structure, BYTES);
    },
    ...bounds,
  });
  return { cache, compiled };
}

describe('the cache', () => {
  test('compiles a structure once, also when it is asked for twice at once and by another field', async () => {
    const { cache, compiled } = cacheOf();
    const [a, b] = await Promise.all([cache.grammarOf(choice('x')), cache.grammarOf({ ...choice('x'), param: 'other' })]);
    expect(a).toBe(b);
    expect(await cache.grammarOf(choice('x'))).toBe(a);
    expect(compiled).toHaveLength(1);
  });

  test('keeps those that were asked for last', async () => {
    const { cache, compiled } = cacheOf();
    for (const text of ['a', 'b', 'c', 'a', 'd', 'a', 'b']) await cache.grammarOf(choice(text));
    expect(compiled).toHaveLength(5);
    expect(cache.count).toBe(3);
  });

  test('keeps no more than its bytes', async () => {
    const { cache } = cacheOf({ maxCount: 1_000, maxBytes: 200_000 });
    for (let i = 0; i < 60; i++) await cache.grammarOf(choice(`choice number ${i}`));
    expect(cache.bytes).toBeLessThanOrEqual(200_000);
    expect(cache.count).toBeGreaterThan(2);
  });

  test('remembers what was refused, and names the field of each request', async () => {
    const { cache, compiled } = cacheOf();
    const bad = (param: string): Structure => ({ kind: 'schema', param, schema: { properties: { x: { not: {} } } } });
    for (const param of ['response_format', 'guided_json']) {
      await expect(cache.grammarOf(bad(param))).rejects.toMatchObject({
        code: 'invalid_value',
        param,
        message: `Invalid JSON schema in '${param}' at #/properties/x/not: 'not' is not supported.`,
      });
    }
    expect(compiled).toHaveLength(1);
  });

  test('tries again what failed for no fault of the structure', async () => {
    let tries = 0;
    const { cache } = cacheOf({
      compile: async structure => {
        if (++tries === 1) throw new Error('the thread ended');
        return compileStructure(structure, BYTES);
      },
    });
    await expect(cache.grammarOf(choice('x'))).rejects.toThrow('the thread ended');
    await expect(cache.grammarOf(choice('x'))).resolves.toBeDefined();
  });
});

describe('the compiler', () => {
  const compiler = new GrammarCompiler({ spelling: { writable: BYTES.writable, all: BYTES.all }, timeoutMs: 20_000, memoryMegabytes: 256 });
  afterAll(() => compiler.close());

  test('gives what is compiled here, one after the other', async () => {
    const structures: Structure[] = [choice('x'), { kind: 'json', param: 'p' }, { kind: 'regex', param: 'p', pattern: 'a+' }, choice('y')];
    const automata = await Promise.all(structures.map(one => compiler.compile(one)));
    expect(automata).toEqual(structures.map(one => compileStructure(one, BYTES)));
  });

  test('hands on refusals with their place', async () => {
    await expect(compiler.compile({ kind: 'grammar', param: 'p', grammar: 'root ::= "a' })).rejects.toMatchObject({
      name: 'GrammarError',
      where: 'line 1, column 12',
    });
  });

  test('a structure nested beyond any stack is refused, and the next one is compiled', async () => {
    let schema: object = {};
    for (let i = 0; i < 50_000; i++) schema = { items: schema };
    await expect(compiler.compile({ kind: 'schema', param: 'p', schema })).rejects.toThrow('nested too deep');
    await expect(compiler.compile(choice('z'))).resolves.toBeDefined();
  });

  test('what takes too long is refused, and the next one gets a new thread', async () => {
    const impatient = new GrammarCompiler({ spelling: { writable: BYTES.writable, all: BYTES.all }, timeoutMs: 1, memoryMegabytes: 256 });
    const slow: Structure = {
      kind: 'schema',
      param: 'p',
      schema: {
        type: 'object',
        properties: Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`name_${i}`, { type: 'string', maxLength: 200 + i }])),
      },
    };
    for (let i = 0; i < 2; i++) await expect(impatient.compile(slow)).rejects.toThrow(GrammarError);
    await impatient.close();
    await expect(impatient.compile(choice('x'))).rejects.toThrow('closed');
  });

  test('what takes too much memory is refused, and the next one gets a new thread', async () => {
    const small = new GrammarCompiler({ spelling: { writable: BYTES.writable, all: BYTES.all }, timeoutMs: 60_000, memoryMegabytes: 12 });
    const choices = Array.from({ length: 60_000 }, (_, i) => `${Math.sin(i)}`);
    await expect(small.compile({ kind: 'choice', param: 'p', choices })).rejects.toThrow('memory');
    await expect(small.compile(choice('x'))).resolves.toBeDefined();
    await small.close();
  });
});
