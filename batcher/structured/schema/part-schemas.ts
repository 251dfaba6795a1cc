/** PartSchemas: what a combined schema asks of one property or element: every word that some of its schemas has on it. */
import { accepts } from '../regex/character-graph.ts';
import { regexGraph } from '../regex/regex-graph.ts';
import type { CombinedSchema } from './combined-schema.ts';
import type { Located } from './schema-keywords.ts';
import { located } from './string-grammar.ts';

export function propertySchemas(schema: CombinedSchema, name: string): Located[] {
  return schema.objects.flatMap(({ properties, patterns, others }) => {
    const own = properties.get(name);
    const matching = patterns.filter(({ pattern, path }) =>
      accepts(
        located(path, () => regexGraph(pattern, 'anywhere')),
        name,
      ),
    );
    const words = [...(own === undefined ? [] : [own]), ...matching.map(({ value }) => value)];
    if (words.length > 0) return words;
    return others === undefined ? [] : [others];
  });
}

export function elementSchemas(schema: CombinedSchema, index: number): Located[] {
  return schema.arrays.flatMap(({ first, others }) => first[index] ?? others ?? []);
}
