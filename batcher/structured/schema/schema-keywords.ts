/**
 * SchemaKeywords: what each keyword of a JSON schema is to us: held to, of no effect on what fits, or refused. Draft 2020-12, and what drafts 4 to 7
 * wrote otherwise. A keyword that no draft knows has no effect, as the specification has it.
 */
import { GrammarError } from '../grammar.ts';

export type JsonSchema = boolean | JsonSchemaObject;
export type JsonSchemaObject = Readonly<Record<string, unknown>>;

/** A schema and where it stands, as a JSON pointer. */
export interface Located {
  schema: JsonSchema;
  path: string;
}

/** Change what fits in a way that no grammar here can follow. */
const REFUSED: ReadonlySet<string> = new Set([
  'not',
  'if',
  'then',
  'else',
  'contains',
  'minContains',
  'maxContains',
  'dependentRequired',
  'dependentSchemas',
  'dependencies',
  'unevaluatedItems',
  '$dynamicRef',
  '$recursiveRef',
  'extends',
  'disallow',
  'divisibleBy',
  'nullable',
]);

/** `#/a/b` and a key below it. */
export function below(path: string, ...keys: readonly (string | number)[]): string {
  return keys.reduce<string>((result, key) => `${result}/${String(key).replaceAll('~', '~0').replaceAll('/', '~1')}`, path);
}

/** The schema as one; anything else is refused with its place. */
export function asSchema(value: unknown, path: string): Located {
  if (typeof value === 'boolean' || isRecord(value)) return { schema: value as JsonSchema, path };
  throw new GrammarError('a schema must be an object or a boolean', path);
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Throws for a keyword that is refused, naming its place. */
export function checkKeywords(schema: JsonSchemaObject, path: string): void {
  for (const [keyword, value] of Object.entries(schema)) {
    if (REFUSED.has(keyword)) throw new GrammarError(`'${keyword}' is not supported`, below(path, keyword));
    if (keyword === 'uniqueItems' && value === true) throw new GrammarError("'uniqueItems' is not supported", below(path, keyword));
    if (keyword === '$id' && path !== '#') throw new GrammarError("'$id' below the root is not supported", below(path, keyword));
  }
}

const readers = {
  number: (value: unknown) => typeof value === 'number' && Number.isFinite(value),
  count: (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0,
  string: (value: unknown) => typeof value === 'string',
  schemas: (value: unknown) => isRecord(value),
  list: (value: unknown) => Array.isArray(value),
};

const EXPECTED = { number: 'a number', count: 'a whole number from 0', string: 'a string', schemas: 'an object', list: 'an array' };

interface Read {
  number: number;
  count: number;
  string: string;
  schemas: Record<string, unknown>;
  list: unknown[];
}

/** A keyword's value; undefined where it is absent. Throws for one of a wrong form. */
export function read<Kind extends keyof Read>({ schema, path }: Located, keyword: string, kind: Kind): Read[Kind] | undefined {
  const value = (schema as JsonSchemaObject)[keyword];
  if (value === undefined) return undefined;
  if (!readers[kind](value)) throw new GrammarError(`'${keyword}' must be ${EXPECTED[kind]}`, below(path, keyword));
  return value as Read[Kind];
}
