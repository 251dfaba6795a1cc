/** Document: whole, without loose ends, and of the calls that there are. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { API_VERSION, openapiDocument, openapiText } from '../../gateway/openapi/document.ts';
import { OPERATIONS } from '../../gateway/openapi/operations.ts';
import { ERROR_CODES, statusOf } from '../../shared/errors.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const read = (path: string) => readFile(join(ROOT, path), 'utf8');

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
const document = JSON.parse(openapiText()) as { [key: string]: Json };

function referencesIn(value: Json): string[] {
  if (typeof value !== 'object' || value === null) return [];
  if (Array.isArray(value)) return value.flatMap(referencesIn);
  return Object.entries(value).flatMap(([key, inner]) => (key === '$ref' ? [inner as string] : referencesIn(inner)));
}

function at(pointer: string): Json | undefined {
  return pointer
    .slice(2)
    .split('/')
    .reduce<Json | undefined>((value, key) => (value as { [key: string]: Json } | undefined)?.[key], document);
}

test('says the version of the package', async () => {
  expect(API_VERSION).toBe(JSON.parse(await read('package.json')).version);
});

test('every reference leads somewhere', () => {
  const references = new Set(referencesIn(document));
  expect(references.size).toBeGreaterThan(20);
  for (const reference of references) expect(at(reference), reference).toBeDefined();
});

test('every route of the app is described, and nothing else', async () => {
  const routes = [...(await read('gateway/app.ts')).matchAll(/^app((?:\.(?:get|post|delete)\(.*)+)$/gm)].flatMap(([, chain]) => {
    const path = /'(\/[^']*)'/.exec(chain!)![1]!;
    const methods = [...chain!.matchAll(/\.(get|post|delete)\(/g)].map(match => match[1]);
    return methods.map(method => `${method} ${path.replaceAll(/:(\w+)/g, '{$1}')}`);
  });
  // The playground is for people; its address is no call.
  const calls = [...new Set(routes)].filter(route => route !== 'get /');
  expect(calls.sort()).toEqual(OPERATIONS.map(({ method, path }) => `${method} ${path}`).sort());
});

test('names are given once, and links lead to calls that there are', () => {
  const ids = OPERATIONS.map(operation => operation.id);
  expect(new Set(ids).size).toBe(ids.length);
  for (const { replies } of OPERATIONS) {
    for (const target of replies.flatMap(reply => Object.keys(reply.links ?? {}))) expect(ids).toContain(target);
  }
});

test('every code of the table may come of some call', () => {
  const told = JSON.stringify(openapiDocument().paths);
  for (const code of ERROR_CODES) expect(told, code).toContain(`\`${code}\``);
  expect(new Set(ERROR_CODES.map(statusOf))).not.toContain(499);
});

test('requests are described by what validates them', () => {
  const schema = at('#/components/schemas/ChatCompletionRequest') as { required: string[]; properties: Record<string, Json> };
  expect(schema.required.sort()).toEqual(['messages', 'model']);
  expect(schema.properties.top_logprobs).toMatchObject({ anyOf: [{ type: 'integer', minimum: 0, maximum: 20 }, { type: 'null' }] });
  const prompt = (at('#/components/schemas/CompletionRequest') as { properties: Record<string, Json> }).properties.prompt;
  expect(prompt).toMatchObject({ anyOf: expect.arrayContaining([expect.objectContaining({ type: 'array', maxItems: 64 })]) });
});
