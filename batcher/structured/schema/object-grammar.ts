/**
 * ObjectGrammar: the objects that a combined schema allows. Properties are written in the order in which the schema names them. Others are written
 * only where it says that there may be: by `additionalProperties` or by `patternProperties`; and none twice.
 */
import { GrammarError, type GrammarNode, isNever, NEVER, text } from '../grammar.ts';
import { COMMA, enclosed, pair } from '../json/json-text.ts';
import { type CharacterGraph, intersection, isEmptyGraph } from '../regex/character-graph.ts';
import { regexGraph } from '../regex/regex-graph.ts';
import { type CombinedSchema, combine } from './combined-schema.ts';
import { propertySchemas } from './part-schemas.ts';
import type { SchemaGrammar } from './schema-grammar.ts';
import { below, type Located } from './schema-keywords.ts';
import { located, stringGrammar } from './string-grammar.ts';

const MAX_COUNTED = 64;

export function objectGrammar(schema: CombinedSchema, grammar: SchemaGrammar): GrammarNode {
  const names = new Set([...schema.objects.flatMap(({ properties }) => [...properties.keys()]), ...schema.required]);
  const items: { node: GrammarNode; isRequired: boolean }[] = [];
  for (const name of names) {
    const isRequired = schema.required.has(name);
    const words = propertySchemas(schema, name);
    const value = grammar.check.fitsAll(name, schema.propertyNames) ? grammar.node(words) : NEVER;
    if (!isNever(value)) items.push({ node: pair(text(JSON.stringify(name)), value), isRequired });
    else if (isRequired) throw new GrammarError('no value fits, and one is required', words[0]?.path ?? below(schema.path, 'required'));
  }
  const rest = otherProperties(schema, [...names], grammar);
  const { minProperties, maxProperties, path } = schema;
  const requiredCount = items.filter(item => item.isRequired).length;
  if (minProperties > maxProperties || requiredCount > maxProperties)
    throw new GrammarError('no object has so few and so many properties', path);
  if (rest === undefined && minProperties > items.length) {
    throw new GrammarError(`'minProperties' is ${minProperties}, more than the ${items.length} properties that can be written`, path);
  }
  // The same name could come twice, and would be one property.
  if (rest !== undefined && minProperties > requiredCount) {
    throw new GrammarError("'minProperties' is not supported together with properties of any name", path);
  }
  const most = Math.min(maxProperties, MAX_COUNTED);
  const isCounted = maxProperties < (rest === undefined ? items.length : Number.POSITIVE_INFINITY) || minProperties > requiredCount;
  return enclosed('{', {
    kind: 'list',
    items,
    rest,
    separator: COMMA,
    ...(isCounted && { least: minProperties, ...(maxProperties < Number.POSITIVE_INFINITY && { most }) }),
  });
}

/** Undefined where none may be written. */
function otherProperties(schema: CombinedSchema, names: readonly string[], grammar: SchemaGrammar): GrammarNode | undefined {
  const patterns = schema.objects.flatMap(member => member.patterns);
  if (patterns.length > 0) return patternProperties(schema, { patterns, names }, grammar);
  const words = schema.objects.flatMap(({ others }) => others ?? []);
  // A schema that speaks of names or of their count alone means objects of any names.
  const isOfNames = schema.objects.length === 0 && (schema.propertyNames.length > 0 || schema.maxProperties < Number.POSITIVE_INFINITY);
  if (words.length === 0 && !isOfNames) return undefined;
  const value = grammar.node(words);
  const key = keyGrammar(schema, undefined, { names, grammar });
  return isNever(value) || isNever(key) ? undefined : pair(key, value);
}

type PatternMember = CombinedSchema['objects'][number]['patterns'][number];

/** Each pattern with its own values; names that fit none are not written, and patterns of which two may fit one name are refused. */
function patternProperties(
  schema: CombinedSchema,
  { patterns, names }: { patterns: readonly PatternMember[]; names: readonly string[] },
  grammar: SchemaGrammar,
): GrammarNode | undefined {
  const graphs: { graph: CharacterGraph; value: Located; path: string; pattern: string }[] = [];
  for (const { pattern, path, value } of patterns) {
    const graph = located(path, () => regexGraph(pattern, 'anywhere'));
    const rival = graphs.find(other => !isEmptyGraph(located(path, () => intersection(graph, other.graph))));
    if (rival !== undefined)
      throw new GrammarError(`one name may fit this pattern and ${JSON.stringify(rival.pattern)}, which is not supported`, path);
    graphs.push({ graph, value, path, pattern });
  }
  const parts = graphs.flatMap(({ pattern, path, value }) => {
    const node = grammar.node([value]);
    const key = keyGrammar(schema, { pattern, path }, { names, grammar });
    return isNever(node) || isNever(key) ? [] : [pair(key, node)];
  });
  return parts.length === 0 ? undefined : { kind: 'choice', parts };
}

/** Names that are none of those that the schema has, and that it allows. */
function keyGrammar(
  schema: CombinedSchema,
  word: { pattern: string; path: string } | undefined,
  { names, grammar }: { names: readonly string[]; grammar: SchemaGrammar },
): GrammarNode {
  const key = combine(schema.propertyNames, grammar.references);
  if (key.listed.length > 0) {
    const free = key.listed[0]!.values.filter(name => typeof name === 'string' && !names.includes(name) && grammar.check.fits(name, key));
    return grammar.node([{ schema: { enum: free }, path: schema.path }]);
  }
  if (key.groups.length > 0) throw new GrammarError("'propertyNames' with alternatives is not supported", key.path);
  if (word !== undefined) key.strings.push(word);
  return stringGrammar(key, names);
}
