/**
 * CallGrammar: answers that call functions, as a grammar: calls alone, or text up to a call, in the way in which the model writes them; arguments fit
 * their function's schema.
 */
import { ARGUMENTS_MARK, CALL_ID_LENGTH, CALL_MARKUP, type CallMarkup, ID_MARK, type NamedMarks } from '../../tools/tool-format.ts';
import {
  choice,
  EMPTY,
  type Grammar,
  GrammarError,
  type GrammarNode,
  mark,
  oneOf,
  optional,
  repeat,
  sequence,
  shared,
  text,
} from '../grammar.ts';
import { GrammarScope } from '../grammar-scope.ts';
import { schemaGrammar } from '../schema/schema-grammar.ts';
import type { CallableFunction, CallStructure } from './call-structure.ts';
import { talkUntil, talkWithout } from './talk-graph.ts';

const ID_CHARACTERS = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789';

/** Of an answer that must call. */
const MAX_CALLS = 16;

/** `answerGrammar` is that of the text's own structure. Throws GrammarError. */
export function callGrammar(structure: CallStructure, answerGrammar: Grammar | undefined): Grammar {
  const { format, openerTokenId, named, functions, isForced, isParallel } = structure;
  const markup = CALL_MARKUP[format];
  const scope = new GrammarScope();
  const call = shared(named === undefined ? callNode(functions, markup, scope) : namedCallNode(functions, named, scope));
  const most = isParallel ? MAX_CALLS : 1;
  const opener = mark(markup.opener, openerTokenId);
  const ways = { call, most, opener, isNamed: named !== undefined };
  let root: GrammarNode;
  if (isForced) root = callsAlone(markup, ways);
  else if (answerGrammar !== undefined) root = choice(scope.add('answer', answerGrammar), callsAlone(markup, ways));
  else root = callsInTalk(markup, { ...ways, hasControl: openerTokenId !== undefined });
  return { root, rules: scope.rules };
}

/** One call, its function's name first. */
function namedCallNode(
  functions: readonly CallableFunction[],
  { hasIds, idTokenId, argumentsTokenId }: NamedMarks,
  scope: GrammarScope,
): GrammarNode {
  const id = hasIds ? sequence(mark(ID_MARK, idTokenId), repeat(oneOf(ID_CHARACTERS), CALL_ID_LENGTH, CALL_ID_LENGTH)) : EMPTY;
  const behindName = shared(sequence(id, mark(ARGUMENTS_MARK, argumentsTokenId)));
  return choice(
    ...functions.map(({ name, schema, param }, index) =>
      sequence(text(name), behindName, scope.add(String(index), functionGrammar(schema, param))),
    ),
  );
}

/** One call's object, spelled as models spell it up to its arguments. */
function callNode(functions: readonly CallableFunction[], { argumentsKey }: CallMarkup, scope: GrammarScope): GrammarNode {
  const bodies = functions.map(({ name, schema, param }, index) =>
    sequence(text(`${name}", "${argumentsKey}": `), scope.add(String(index), functionGrammar(schema, param)), text('}')),
  );
  return sequence(text('{"name": "'), choice(...bodies));
}

function functionGrammar(schema: unknown, param: string): Grammar {
  try {
    return schemaGrammar(schema);
  } catch (error) {
    throw error instanceof GrammarError ? new GrammarError(error.message, error.where, param) : error;
  }
}

interface Ways {
  call: GrammarNode;
  most: number;
  opener: GrammarNode;
  isNamed: boolean;
}

function callsAlone(markup: CallMarkup, { call, most, opener, isNamed }: Ways): GrammarNode {
  const { closer, isBare, isList } = markup;
  if (isNamed) return repeat(shared(sequence(opener, call)), 1, most);
  if (closer !== undefined) {
    const one = shared(sequence(opener, closed(call, closer)));
    return sequence(one, repeat(sequence(text('\n'), one), 0, most - 1));
  }
  if (isList) return sequence(opener, listed(call, markup, most));
  return isBare ? separated(call, markup, most) : sequence(opener, separated(call, markup, most));
}

function callsInTalk(markup: CallMarkup, { call, most, opener, hasControl, isNamed }: Ways & { hasControl: boolean }): GrammarNode {
  const { closer, isBare, isList } = markup;
  if (isBare) {
    // Text does not begin as a call does.
    const calls = separated(call, markup, most);
    return choice(calls, talkWithout('{', hasControl ? sequence(opener, calls) : undefined));
  }
  let written = call;
  if (closer !== undefined) written = closed(call, closer);
  else if (!isNamed) written = isList ? listed(call, markup, most) : separated(call, markup, most);
  return talkUntil({
    opener: hasControl ? opener : markup.opener,
    written,
    isRepeated: (closer !== undefined || isNamed) && most > 1,
  });
}

const BREAK = optional(text('\n'));

function closed(call: GrammarNode, closer: string): GrammarNode {
  return sequence(BREAK, call, BREAK, text(closer));
}

function listed(call: GrammarNode, markup: CallMarkup, most: number): GrammarNode {
  return sequence(optional(text(' ')), text('['), separated(call, markup, most), text(']'));
}

function separated(call: GrammarNode, { separator }: CallMarkup, most: number): GrammarNode {
  return sequence(call, repeat(sequence(text(`${separator ?? ''} `), call), 0, most - 1));
}
