/** ValueCheck: whether a value fits a combined schema; for the values of `enum` and `const`, and for names of properties. */
import { accepts } from '../regex/character-graph.ts';
import { type CombinedSchema, combine, type TypeName } from './combined-schema.ts';
import { elementSchemas, propertySchemas } from './part-schemas.ts';
import type { Located } from './schema-keywords.ts';
import type { SchemaReferences } from './schema-references.ts';
import { textGraph } from './string-grammar.ts';

export class ValueCheck {
  readonly #references: SchemaReferences;

  constructor(references: SchemaReferences) {
    this.#references = references;
  }

  fitsAll(value: unknown, all: readonly Located[]): boolean {
    return this.fits(value, combine(all, this.#references));
  }

  fits(value: unknown, schema: CombinedSchema): boolean {
    if (schema.isNever || (schema.types !== undefined && !hasType(value, schema.types))) return false;
    if (!schema.listed.every(({ values }) => values.some(one => isEqual(one, value)))) return false;
    if (typeof value === 'string' && !this.#fitsString(value, schema)) return false;
    if (typeof value === 'number' && !fitsNumber(value, schema)) return false;
    if (Array.isArray(value) && !this.#fitsArray(value, schema)) return false;
    if (typeof value === 'object' && value !== null && !Array.isArray(value) && !this.#fitsObject(value, schema)) return false;
    return schema.groups.every(({ keyword, branches }) => {
      const count = branches.filter(branch => this.fitsAll(value, [branch])).length;
      return keyword === 'oneOf' ? count === 1 : count > 0;
    });
  }

  #fitsString(value: string, schema: CombinedSchema): boolean {
    const length = Array.from(value).length;
    return length >= schema.minLength && length <= schema.maxLength && accepts(textGraph(schema.strings), value);
  }

  #fitsArray(value: readonly unknown[], schema: CombinedSchema): boolean {
    if (value.length < schema.minItems || value.length > schema.maxItems) return false;
    return value.every((element, index) => this.fitsAll(element, elementSchemas(schema, index)));
  }

  #fitsObject(value: object, schema: CombinedSchema): boolean {
    const entries = Object.entries(value);
    if (entries.length < schema.minProperties || entries.length > schema.maxProperties) return false;
    if ([...schema.required].some(name => !Object.hasOwn(value, name))) return false;
    return entries.every(([name, inner]) => this.fitsAll(name, schema.propertyNames) && this.fitsAll(inner, propertySchemas(schema, name)));
  }
}

function hasType(value: unknown, types: ReadonlySet<TypeName>): boolean {
  if (value === null) return types.has('null');
  if (Array.isArray(value)) return types.has('array');
  if (typeof value === 'number') return types.has('number') || (types.has('integer') && Number.isInteger(value));
  return types.has(typeof value as TypeName);
}

function fitsNumber(value: number, { least, most, multiples }: CombinedSchema): boolean {
  if (least !== undefined && (value < least.value || (least.isAbove && value === least.value))) return false;
  if (most !== undefined && (value > most.value || (most.isBelow && value === most.value))) return false;
  return multiples.every(({ factor }) => Math.abs(value / factor - Math.round(value / factor)) < 1e-9);
}

export function isEqual(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null || Array.isArray(a) !== Array.isArray(b)) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every(key => Object.hasOwn(b, key) && isEqual(valueAt(a, key), valueAt(b, key)));
}

function valueAt(object: object, key: string): unknown {
  return (object as Record<string, unknown>)[key];
}
