/** StringGrammar: the strings that a combined schema allows: by length, pattern and format, written as JSON. */
import { GrammarError, type GrammarNode, NEVER, repeat } from '../grammar.ts';
import { ANY_CHARACTER, ANY_STRING, quoted, spelledInString } from '../json/json-text.ts';
import { ANY_TEXT, anyTextBut, type CharacterGraph, graphNode, intersection, ofLength } from '../regex/character-graph.ts';
import { regexGraph } from '../regex/regex-graph.ts';
import type { CombinedSchema } from './combined-schema.ts';
import { FORMATS, NOTES } from './string-formats.ts';

/** Longer strings are not written where the schema bounds them; without a bound they may have any length. */
const MAX_CHARACTERS = 16_384;

/** `but`: texts that it is not to be. */
export function stringGrammar(schema: CombinedSchema, but: readonly string[] = []): GrammarNode {
  const { strings, minLength, path } = schema;
  const maxLength = schema.maxLength === Number.POSITIVE_INFINITY ? schema.maxLength : Math.min(schema.maxLength, MAX_CHARACTERS);
  if (minLength > MAX_CHARACTERS) throw new GrammarError(`'minLength' may be at most ${MAX_CHARACTERS}`, path);
  if (minLength > maxLength) return NEVER;
  const plain = textGraph(strings);
  const graph = but.length === 0 ? plain : intersection(plain, anyTextBut(but));
  if (graph === ANY_TEXT) {
    return minLength === 0 && maxLength === Number.POSITIVE_INFINITY ? ANY_STRING : quoted(repeat(ANY_CHARACTER, minLength, maxLength));
  }
  return quoted(
    graphNode(
      located(path, () => ofLength(graph, minLength, maxLength)),
      spelledInString,
    ),
  );
}

/** Texts that fit all of these patterns and formats. */
export function textGraph(strings: CombinedSchema['strings']): CharacterGraph {
  return strings.reduce<CharacterGraph>((graph, { pattern, format, path }) => {
    return located(path, () => intersection(graph, pattern !== undefined ? regexGraph(pattern, 'anywhere') : formatGraph(format!)));
  }, ANY_TEXT);
}

function formatGraph(format: string): CharacterGraph {
  if (NOTES.has(format)) return ANY_TEXT;
  const pattern = Object.hasOwn(FORMATS, format) ? FORMATS[format] : undefined;
  if (pattern === undefined) throw new GrammarError(`the format ${JSON.stringify(format.slice(0, 64))} is not supported`);
  return regexGraph(pattern, 'whole');
}

/** Gives errors of the work a place. */
export function located<Result>(path: string, work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    throw error instanceof GrammarError && error.where === undefined ? new GrammarError(error.message, path) : error;
  }
}
