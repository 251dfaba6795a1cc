/** ArrayGrammar: the arrays that a combined schema allows: elements with a schema of their own first, then any number of others. */
import { EMPTY, GrammarError, type GrammarNode, isNever, optional, repeat, sequence, shared } from '../grammar.ts';
import { COMMA, enclosed } from '../json/json-text.ts';
import type { CombinedSchema } from './combined-schema.ts';
import { elementSchemas } from './part-schemas.ts';
import type { SchemaGrammar } from './schema-grammar.ts';

/** Longer arrays are not written where the schema bounds them. */
const MAX_ELEMENTS = 4_096;

export function arrayGrammar(schema: CombinedSchema, grammar: SchemaGrammar): GrammarNode {
  const { minItems, path } = schema;
  const firstCount = Math.max(0, ...schema.arrays.map(({ first }) => first.length));
  const bound = schema.maxItems === Number.POSITIVE_INFINITY ? schema.maxItems : Math.min(schema.maxItems, MAX_ELEMENTS);
  if (minItems > MAX_ELEMENTS) throw new GrammarError(`'minItems' may be at most ${MAX_ELEMENTS}`, path);
  const first: GrammarNode[] = [];
  let maxItems = bound;
  for (let index = 0; index < Math.min(firstCount, bound); index++) {
    const node = grammar.node(elementSchemas(schema, index));
    // Nothing may stand here, so the array ends before.
    if (isNever(node)) {
      maxItems = index;
      break;
    }
    first.push(node);
  }
  const words = elementSchemas(schema, firstCount);
  const other = maxItems > first.length ? grammar.node(words) : undefined;
  if (other !== undefined && isNever(other)) maxItems = first.length;
  if (minItems > maxItems) throw new GrammarError(`no array that fits has ${minItems} elements`, words[0]?.path ?? path);
  return enclosed('[', elements(first, maxItems > first.length ? other : undefined, { minItems, maxItems }));
}

/** Separated; an element that may be missing is missing with all behind it. */
function elements(
  first: readonly GrammarNode[],
  other: GrammarNode | undefined,
  { minItems, maxItems }: { minItems: number; maxItems: number },
): GrammarNode {
  if (other === undefined) return chain(first, EMPTY, minItems);
  const element = shared(other);
  const more = shared(sequence(COMMA, element));
  const least = Math.max(0, minItems - first.length);
  const most = maxItems - first.length;
  if (first.length > 0) return chain(first, repeat(more, least, most), minItems);
  const several = sequence(element, repeat(more, Math.max(0, least - 1), most - 1));
  return least === 0 ? optional(several) : several;
}

function chain(first: readonly GrammarNode[], tail: GrammarNode, minItems: number): GrammarNode {
  let node = tail;
  for (let index = first.length - 1; index >= 0; index--) {
    const here = sequence(...(index === 0 ? [] : [COMMA]), first[index]!, node);
    node = index < minItems ? here : optional(here);
  }
  return node;
}
