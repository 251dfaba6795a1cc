/**
 * CombinedSchema: what several schemas ask of one value together, keyword by keyword: a schema with its `allOf`, its `$ref` and what stands beside
 * them. `anyOf` and `oneOf` are left as groups of branches, of which each group lends one.
 */
import { GrammarError } from '../grammar.ts';
import { asSchema, below, checkKeywords, type JsonSchemaObject, type Located, read } from './schema-keywords.ts';
import type { SchemaReferences } from './schema-references.ts';

export const TYPES = ['string', 'number', 'integer', 'boolean', 'null', 'object', 'array'] as const;
export type TypeName = (typeof TYPES)[number];

/** One schema's word on an object's properties: which it knows, and what the others are to be. */
export interface ObjectMember {
  properties: ReadonlyMap<string, Located>;
  patterns: readonly { pattern: string; path: string; value: Located }[];
  /** Undefined where it says nothing: others may be there. */
  others: Located | undefined;
}

/** One schema's word on an array's elements. */
export interface ArrayMember {
  first: readonly Located[];
  others: Located | undefined;
}

export interface BranchGroup {
  keyword: 'anyOf' | 'oneOf';
  path: string;
  branches: readonly Located[];
}

export interface CombinedSchema {
  /** Where to say that it does not work out. */
  path: string;
  /** Undefined: any. */
  types: ReadonlySet<TypeName> | undefined;
  /** Lists of which each has the value. */
  listed: { values: readonly unknown[]; path: string }[];
  strings: { pattern?: string; format?: string; path: string }[];
  minLength: number;
  maxLength: number;
  least: { value: number; isAbove: boolean } | undefined;
  most: { value: number; isBelow: boolean } | undefined;
  multiples: { factor: number; path: string }[];
  objects: ObjectMember[];
  required: Set<string>;
  propertyNames: Located[];
  minProperties: number;
  maxProperties: number;
  arrays: ArrayMember[];
  minItems: number;
  maxItems: number;
  groups: BranchGroup[];
  /** It is, or has in it, the schema `false`. */
  isNever: boolean;
}

/** Of references and `allOf` among the parts of one value. */
const MAX_NESTING = 32;

export function combine(all: readonly Located[], references: SchemaReferences): CombinedSchema {
  const combined = free(all[0]?.path ?? '#');
  const combiner = new Combiner(combined, references);
  for (const located of all) combiner.add(located, 0);
  return combined;
}

/** What a schema with these groups left out, and this one beside it, ask for together. */
export function withBranch(schema: CombinedSchema, branch: Located, references: SchemaReferences): CombinedSchema {
  const combined: CombinedSchema = {
    ...schema,
    path: branch.path,
    listed: [...schema.listed],
    strings: [...schema.strings],
    least: schema.least && { ...schema.least },
    most: schema.most && { ...schema.most },
    multiples: [...schema.multiples],
    objects: [...schema.objects],
    required: new Set(schema.required),
    propertyNames: [...schema.propertyNames],
    arrays: [...schema.arrays],
    groups: [...schema.groups],
  };
  new Combiner(combined, references).add(branch, 0);
  return combined;
}

/** Asks for nothing. */
function free(path: string): CombinedSchema {
  return {
    path,
    types: undefined,
    listed: [],
    strings: [],
    minLength: 0,
    maxLength: Number.POSITIVE_INFINITY,
    least: undefined,
    most: undefined,
    multiples: [],
    objects: [],
    required: new Set(),
    propertyNames: [],
    minProperties: 0,
    maxProperties: Number.POSITIVE_INFINITY,
    arrays: [],
    minItems: 0,
    maxItems: Number.POSITIVE_INFINITY,
    groups: [],
    isNever: false,
  };
}

class Combiner {
  readonly #into: CombinedSchema;
  readonly #references: SchemaReferences;

  constructor(into: CombinedSchema, references: SchemaReferences) {
    this.#into = into;
    this.#references = references;
  }

  add(located: Located, nesting: number): void {
    const { schema, path } = located;
    if (nesting > MAX_NESTING)
      throw new GrammarError(`more than ${MAX_NESTING} references and 'allOf's lie within each other here, or refer to themselves`, path);
    if (schema === true) return;
    if (schema === false) {
      this.#into.isNever = true;
      return;
    }
    checkKeywords(schema, path);
    const reference = read(located, '$ref', 'string');
    if (reference !== undefined) this.add(this.#references.resolve(reference, below(path, '$ref')), nesting + 1);
    for (const [index, part] of (read(located, 'allOf', 'list') ?? []).entries()) {
      this.add(asSchema(part, below(path, 'allOf', index)), nesting + 1);
    }
    this.#types(located);
    this.#listed(schema, path);
    this.#string(located);
    this.#number(located);
    this.#object(located);
    this.#array(located);
    for (const keyword of ['anyOf', 'oneOf'] as const) {
      const branches = read(located, keyword, 'list');
      if (branches === undefined) continue;
      const own = below(path, keyword);
      if (branches.length === 0) throw new GrammarError(`'${keyword}' must have at least one schema`, own);
      const group = { keyword, path: own, branches: branches.map((branch, index) => asSchema(branch, below(own, index))) };
      this.#into.groups.push(group);
    }
  }

  #types({ schema, path }: Located): void {
    const value = (schema as JsonSchemaObject).type;
    if (value === undefined) return;
    const names = Array.isArray(value) ? value : [value];
    for (const name of names) {
      if (!TYPES.includes(name as TypeName)) throw new GrammarError(`'type' must be of ${TYPES.join(', ')}`, below(path, 'type'));
    }
    const own = new Set(names as TypeName[]);
    const before = this.#into.types;
    this.#into.types = before === undefined ? own : commonTypes(before, own);
  }

  #listed(schema: JsonSchemaObject, path: string): void {
    if (schema.enum !== undefined) {
      if (!Array.isArray(schema.enum)) throw new GrammarError("'enum' must be an array", below(path, 'enum'));
      this.#into.listed.push({ values: schema.enum, path: below(path, 'enum') });
    }
    if (schema.const !== undefined) this.#into.listed.push({ values: [schema.const], path: below(path, 'const') });
  }

  #string(located: Located): void {
    const into = this.#into;
    const pattern = read(located, 'pattern', 'string');
    const format = read(located, 'format', 'string');
    if (pattern !== undefined) into.strings.push({ pattern, path: below(located.path, 'pattern') });
    if (format !== undefined) into.strings.push({ format, path: below(located.path, 'format') });
    into.minLength = Math.max(into.minLength, read(located, 'minLength', 'count') ?? 0);
    into.maxLength = Math.min(into.maxLength, read(located, 'maxLength', 'count') ?? Number.POSITIVE_INFINITY);
  }

  #number(located: Located): void {
    const { schema, path } = located;
    // In draft 4 they were booleans beside the bound.
    const { exclusiveMinimum, exclusiveMaximum } = schema as JsonSchemaObject;
    const minimum = read(located, 'minimum', 'number');
    const maximum = read(located, 'maximum', 'number');
    if (minimum !== undefined) this.#atLeast(minimum, exclusiveMinimum === true);
    if (maximum !== undefined) this.#atMost(maximum, exclusiveMaximum === true);
    if (typeof exclusiveMinimum !== 'boolean') {
      const bound = read(located, 'exclusiveMinimum', 'number');
      if (bound !== undefined) this.#atLeast(bound, true);
    }
    if (typeof exclusiveMaximum !== 'boolean') {
      const bound = read(located, 'exclusiveMaximum', 'number');
      if (bound !== undefined) this.#atMost(bound, true);
    }
    const factor = read(located, 'multipleOf', 'number');
    if (factor === undefined) return;
    if (factor <= 0) throw new GrammarError("'multipleOf' must be above 0", below(path, 'multipleOf'));
    this.#into.multiples.push({ factor, path: below(path, 'multipleOf') });
  }

  #atLeast(value: number, isAbove: boolean): void {
    const { least } = this.#into;
    if (least === undefined || value > least.value) this.#into.least = { value, isAbove };
    else if (value === least.value) least.isAbove ||= isAbove;
  }

  #atMost(value: number, isBelow: boolean): void {
    const { most } = this.#into;
    if (most === undefined || value < most.value) this.#into.most = { value, isBelow };
    else if (value === most.value) most.isBelow ||= isBelow;
  }

  #object(located: Located): void {
    const { schema, path } = located as { schema: JsonSchemaObject; path: string };
    const into = this.#into;
    const properties = read(located, 'properties', 'schemas');
    const patterns = read(located, 'patternProperties', 'schemas');
    const others = schema.additionalProperties;
    for (const [index, name] of (read(located, 'required', 'list') ?? []).entries()) {
      if (typeof name !== 'string') throw new GrammarError("'required' must have strings", below(path, 'required', index));
      into.required.add(name);
    }
    if (schema.propertyNames !== undefined) into.propertyNames.push(asSchema(schema.propertyNames, below(path, 'propertyNames')));
    into.minProperties = Math.max(into.minProperties, read(located, 'minProperties', 'count') ?? 0);
    into.maxProperties = Math.min(into.maxProperties, read(located, 'maxProperties', 'count') ?? Number.POSITIVE_INFINITY);
    // All that are written here are evaluated by some schema; none that is left to it are ever written.
    const rest = schema.unevaluatedProperties;
    if (rest !== undefined && rest !== false && rest !== true) {
      throw new GrammarError("'unevaluatedProperties' is supported as true or false only", below(path, 'unevaluatedProperties'));
    }
    if (properties === undefined && patterns === undefined && others === undefined) return;
    into.objects.push({
      properties: new Map(
        Object.entries(properties ?? {}).map(([name, value]) => [name, asSchema(value, below(path, 'properties', name))]),
      ),
      patterns: Object.entries(patterns ?? {}).map(([pattern, value]) => {
        const own = below(path, 'patternProperties', pattern);
        return { pattern, path: own, value: asSchema(value, own) };
      }),
      others: others === undefined ? undefined : asSchema(others, below(path, 'additionalProperties')),
    });
  }

  #array(located: Located): void {
    const { schema, path } = located as { schema: JsonSchemaObject; path: string };
    const into = this.#into;
    into.minItems = Math.max(into.minItems, read(located, 'minItems', 'count') ?? 0);
    into.maxItems = Math.min(into.maxItems, read(located, 'maxItems', 'count') ?? Number.POSITIVE_INFINITY);
    // Before draft 2020-12 `items` could be the list, and `additionalItems` what follows.
    const isOldForm = Array.isArray(schema.items);
    const listKeyword = isOldForm ? 'items' : 'prefixItems';
    const othersKeyword = isOldForm ? 'additionalItems' : 'items';
    const first = read(located, listKeyword, 'list');
    const others = schema[othersKeyword];
    if (first === undefined && others === undefined) return;
    into.arrays.push({
      first: (first ?? []).map((item, index) => asSchema(item, below(path, listKeyword, index))),
      others: others === undefined ? undefined : asSchema(others, below(path, othersKeyword)),
    });
  }
}

/** Of both lists; an integer is a number. */
function commonTypes(a: ReadonlySet<TypeName>, b: ReadonlySet<TypeName>): Set<TypeName> {
  const isIn = (name: TypeName, set: ReadonlySet<TypeName>): boolean => set.has(name) || (name === 'integer' && set.has('number'));
  return new Set(TYPES.filter(name => isIn(name, a) && isIn(name, b)));
}

/** The types that a combined schema is about: those it names, else those that its keywords are about, else all. */
export function typesOf(schema: CombinedSchema): ReadonlySet<TypeName> {
  if (schema.types !== undefined) {
    // Every integer is a number too.
    return schema.types.has('number') ? new Set([...schema.types].filter(name => name !== 'integer')) : schema.types;
  }
  const spoken: TypeName[] = [];
  if (schema.objects.length > 0 || schema.required.size > 0 || schema.propertyNames.length > 0 || schema.minProperties > 0)
    spoken.push('object');
  if (schema.arrays.length > 0 || schema.minItems > 0 || schema.maxItems < Number.POSITIVE_INFINITY) spoken.push('array');
  if (schema.strings.length > 0 || schema.minLength > 0 || schema.maxLength < Number.POSITIVE_INFINITY) spoken.push('string');
  if (schema.least !== undefined || schema.most !== undefined || schema.multiples.length > 0) spoken.push('number');
  return new Set(spoken.length > 0 ? spoken : TYPES.filter(name => name !== 'integer'));
}

/** Nothing is asked but perhaps a choice of branches. */
export function isFree(schema: CombinedSchema): boolean {
  const { types, listed, minLength, maxLength, least, most, multiples, minProperties, maxProperties, minItems, maxItems } = schema;
  const lists = [listed, schema.strings, multiples, schema.objects, schema.propertyNames, schema.arrays];
  const hasLeast = minLength > 0 || minProperties > 0 || minItems > 0 || schema.required.size > 0;
  const hasMost = Math.min(maxLength, maxProperties, maxItems) < Number.POSITIVE_INFINITY;
  const isBounded = least !== undefined || most !== undefined || hasLeast || hasMost;
  return types === undefined && lists.every(list => list.length === 0) && !isBounded && !schema.isNever;
}
