/**
 * ExclusiveBranches: whether no value fits two branches of a `oneOf`. Only what can be told from the schemas themselves counts: other types, other
 * constants, or a property that both need and that is different, or that one needs and the other forbids.
 */
import { GrammarError } from '../grammar.ts';
import { type CombinedSchema, combine, typesOf } from './combined-schema.ts';
import { propertySchemas } from './part-schemas.ts';
import { below } from './schema-keywords.ts';
import type { SchemaReferences } from './schema-references.ts';
import type { ValueCheck } from './value-check.ts';

const MAX_DEPTH = 3;

interface Tools {
  check: ValueCheck;
  references: SchemaReferences;
}

/** Throws GrammarError at the second of two branches that may fit one value. */
export function checkExclusive(branches: readonly CombinedSchema[], { path, ...tools }: Tools & { path: string }): void {
  for (const [index, branch] of branches.entries()) {
    const rival = branches.slice(0, index).findIndex(other => !areExclusive(branch, other, tools, 0));
    if (rival === -1) continue;
    throw new GrammarError(
      `a value may fit this and ${below(path, rival)}, which 'oneOf' forbids; use 'anyOf', or a required property with another 'const' in each`,
      below(path, index),
    );
  }
}

function areExclusive(a: CombinedSchema, b: CombinedSchema, tools: Tools, depth: number): boolean {
  if (a.isNever || b.isNever) return true;
  const types = typesIfSaid(a);
  const others = typesIfSaid(b);
  const common = [...types].filter(
    type => others.has(type) || (type === 'integer' && others.has('number')) || (type === 'number' && others.has('integer')),
  );
  if (common.length === 0) return true;
  if (a.listed.length > 0) return a.listed[0]!.values.every(value => !tools.check.fits(value, a) || !tools.check.fits(value, b));
  if (b.listed.length > 0) return areExclusive(b, a, tools, depth);
  if (common.some(type => type !== 'object') || depth >= MAX_DEPTH) return false;
  return [...a.required, ...b.required].some(name => isTold(name, a, b, { tools, depth }) || isTold(name, b, a, { tools, depth }));
}

/** An object of `a` has the property, and none of `b` has one like it. */
function isTold(name: string, a: CombinedSchema, b: CombinedSchema, { tools, depth }: { tools: Tools; depth: number }): boolean {
  if (!a.required.has(name)) return false;
  const own = combine(propertySchemas(a, name), tools.references);
  const others = combine(propertySchemas(b, name), tools.references);
  if (others.isNever) return true;
  return b.required.has(name) && areExclusive(own, others, tools, depth + 1);
}

/** All types where none is named: keywords of one type say nothing of values of another. */
function typesIfSaid(schema: CombinedSchema): ReadonlySet<string> {
  return schema.types ?? (schema.listed.length > 0 ? typesOf(schema) : new Set(['string', 'number', 'boolean', 'null', 'object', 'array']));
}
