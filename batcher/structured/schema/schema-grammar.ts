/**
 * SchemaGrammar: a JSON schema as a grammar of which every text is a value that fits the schema. It may allow less than the schema does (numbers of
 * at most 15 digits; no properties that the schema does not speak of, unless it says that there may be others), never more: what it cannot hold to is
 * refused, with its place in the schema.
 */
import { choice, type Grammar, GrammarError, type GrammarNode, isNever, NEVER, oneOfTexts, rule } from '../grammar.ts';
import { ANY_INTEGER, ANY_NUMBER, ANY_OBJECT, ANY_VALUE, BOOLEAN, constant, JSON_RULES, MAX_DIGITS, NULL } from '../json/json-text.ts';
import { multiplesOf } from '../json/number-multiples.ts';
import { numberRange } from '../json/number-range.ts';
import { arrayGrammar } from './array-grammar.ts';
import { type CombinedSchema, combine, isFree, type TypeName, typesOf, withBranch } from './combined-schema.ts';
import { checkExclusive } from './exclusive-branches.ts';
import { objectGrammar } from './object-grammar.ts';
import { asSchema, below, type JsonSchemaObject, type Located } from './schema-keywords.ts';
import { SchemaReferences } from './schema-references.ts';
import { located, stringGrammar } from './string-grammar.ts';
import { ValueCheck } from './value-check.ts';

/** Parts that a schema is worked into, its branches multiplied out. */
const MAX_PARTS = 4_000;
const MAX_RULES = 500;
/** What may stand beside a reference without saying anything more. */
const SILENT: ReadonlySet<string> = new Set([
  '$ref',
  'title',
  'description',
  '$comment',
  'default',
  'examples',
  'deprecated',
  'readOnly',
  'writeOnly',
]);

/** Throws GrammarError. */
export function schemaGrammar(schema: unknown): Grammar {
  return new SchemaGrammar(schema).build();
}

export class SchemaGrammar {
  readonly #root: Located;
  readonly #references: SchemaReferences;
  readonly #check: ValueCheck;
  readonly #rules = new Map<string, GrammarNode>(JSON_RULES);
  readonly #unbuilt: { name: string; target: Located }[] = [];
  #partCount = 0;

  constructor(schema: unknown) {
    this.#root = asSchema(schema, '#');
    this.#references = new SchemaReferences(this.#root.schema);
    this.#check = new ValueCheck(this.#references);
  }

  build(): Grammar {
    const root = this.node([this.#root]);
    for (;;) {
      const next = this.#unbuilt.pop();
      if (next === undefined) break;
      this.#rules.set(next.name, this.#node([next.target]));
    }
    if (isNever(root)) throw new GrammarError('no value fits', '#');
    return { root, rules: this.#rules };
  }

  get references(): SchemaReferences {
    return this.#references;
  }

  get check(): ValueCheck {
    return this.#check;
  }

  /** Values that fit all of these. */
  node(all: readonly Located[]): GrammarNode {
    return (all.length === 1 ? this.#reference(all[0]!) : undefined) ?? this.#node(all);
  }

  #node(all: readonly Located[]): GrammarNode {
    return this.#combined(combine(all, this.#references));
  }

  /** A reference alone is a rule of its own, so that it may lead back to where it stands. */
  #reference({ schema, path }: Located): GrammarNode | undefined {
    const reference = typeof schema === 'object' ? (schema as JsonSchemaObject).$ref : undefined;
    if (typeof reference !== 'string' || !Object.keys(schema).every(key => SILENT.has(key))) return undefined;
    const target = this.#references.resolve(reference, below(path, '$ref'));
    if (!this.#rules.has(target.path)) {
      if (this.#rules.size >= MAX_RULES) throw new GrammarError(`the schema refers to more than ${MAX_RULES} parts`, path);
      this.#rules.set(target.path, NEVER);
      this.#unbuilt.push({ name: target.path, target });
    }
    return rule(target.path);
  }

  #combined(schema: CombinedSchema): GrammarNode {
    if (++this.#partCount > MAX_PARTS) throw new GrammarError(`the schema comes to more than ${MAX_PARTS} parts`, schema.path);
    if (schema.isNever) return NEVER;
    if (schema.listed.length > 0) return this.#listed(schema);
    if (schema.groups.length > 0) return this.#branches(schema);
    if (isFree(schema)) return ANY_VALUE;
    return choice(...Array.from(typesOf(schema), type => this.#ofType(schema, type)));
  }

  #listed(schema: CombinedSchema): GrammarNode {
    const [first, ...others] = schema.listed;
    const values = first!.values.filter(value => this.#check.fits(value, { ...schema, listed: others }));
    const isPlain = (value: unknown): boolean => typeof value !== 'object' || value === null;
    const texts = values.filter(isPlain).map(value => JSON.stringify(value));
    return choice(oneOfTexts(texts), ...values.filter(value => !isPlain(value)).map(constant));
  }

  #branches(schema: CombinedSchema): GrammarNode {
    const [group, ...groups] = schema.groups;
    const { keyword, branches, path } = group!;
    const base = { ...schema, groups };
    const isBare = groups.length === 0 && isFree(base);
    if (keyword === 'oneOf') {
      const combined = branches.map(branch => withBranch(base, branch, this.#references));
      checkExclusive(combined, { path, check: this.#check, references: this.#references });
    }
    return choice(...branches.map(branch => (isBare ? this.node([branch]) : this.#combined(withBranch(base, branch, this.#references)))));
  }

  #ofType(schema: CombinedSchema, type: TypeName): GrammarNode {
    switch (type) {
      case 'string':
        return stringGrammar(schema);
      case 'integer':
      case 'number':
        return numberGrammar(schema, type);
      case 'boolean':
        return BOOLEAN;
      case 'null':
        return NULL;
      case 'array':
        return arrayGrammar(schema, this);
      case 'object':
        return saysNothingOfObjects(schema) ? ANY_OBJECT : objectGrammar(schema, this);
    }
  }
}

function saysNothingOfObjects(schema: CombinedSchema): boolean {
  const { objects, required, propertyNames, minProperties, maxProperties } = schema;
  const isCounted = minProperties > 0 || maxProperties < Number.POSITIVE_INFINITY;
  return objects.length === 0 && required.size === 0 && propertyNames.length === 0 && !isCounted;
}

function numberGrammar(schema: CombinedSchema, type: 'integer' | 'number'): GrammarNode {
  const { least, most, path } = schema;
  const bounds = {
    least: least?.value,
    most: most?.value,
    ...(least !== undefined && { isAboveLeast: least.isAbove }),
    ...(most !== undefined && { isBelowMost: most.isBelow }),
  };
  // Every whole number is a multiple of a tenth.
  const multiples = schema.multiples.filter(({ factor }) => type === 'number' || factor >= 1);
  if (multiples.length > 0) {
    const factor = commonMultiple(multiples.map(one => one.factor));
    if (factor === undefined) throw new GrammarError('these multiples cannot be held to together', multiples[1]!.path);
    return located(multiples[0]!.path, () => multiplesOf(factor, bounds));
  }
  if (least === undefined && most === undefined) return type === 'integer' ? ANY_INTEGER : ANY_NUMBER;
  if (least !== undefined && most !== undefined && least.value > most.value) return NEVER;
  return located(path, () => numberRange(bounds, type === 'integer' ? 0 : MAX_DIGITS));
}

function commonMultiple(factors: readonly number[]): number | undefined {
  if (factors.length === 1) return factors[0];
  if (!factors.every(Number.isSafeInteger)) return undefined;
  const divisor = (a: number, b: number): number => (b === 0 ? a : divisor(b, a % b));
  const result = factors.reduce((a, b) => (a / divisor(a, b)) * b, 1);
  return Number.isSafeInteger(result) ? result : undefined;
}
