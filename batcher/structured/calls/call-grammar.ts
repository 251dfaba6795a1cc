/**
 * CallGrammar: answers that call functions, as a grammar: calls alone, or text up to a call, in the way in which the model writes them; arguments fit
 * their function's schema.
 */
import { CALL_MARKUP, type CallMarkup } from '../../tools/tool-format.ts';
import { choice, type Grammar, GrammarError, type GrammarNode, optional, repeat, sequence, shared, text } from '../grammar.ts';
import { GrammarScope } from '../grammar-scope.ts';
import { schemaGrammar } from '../schema/schema-grammar.ts';
import type { CallableFunction, CallStructure } from './call-structure.ts';
import { talkUntil, talkWithout } from './talk-graph.ts';

/** Of an answer that must call. */
const MAX_CALLS = 16;

/** `answerGrammar` is that of the text's own structure. Throws GrammarError. */
export function callGrammar(structure: CallStructure, answerGrammar: Grammar | undefined): Grammar {
  const { format, openerTokenId, functions, isForced, isParallel } = structure;
  const markup = CALL_MARKUP[format];
  const scope = new GrammarScope();
  const call = shared(callNode(functions, markup, scope));
  const most = isParallel ? MAX_CALLS : 1;
  const opener: GrammarNode = openerTokenId === undefined ? text(markup.opener) : { kind: 'control', tokenId: openerTokenId };
  const ways = { call, most, opener };
  let root: GrammarNode;
  if (isForced) root = callsAlone(markup, ways);
  else if (answerGrammar !== undefined) root = choice(scope.add('answer', answerGrammar), callsAlone(markup, ways));
  else root = callsInTalk(markup, { ...ways, hasControl: openerTokenId !== undefined });
  return { root, rules: scope.rules };
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
}

function callsAlone(markup: CallMarkup, { call, most, opener }: Ways): GrammarNode {
  const { closer, isBare, isList } = markup;
  if (closer !== undefined) {
    const one = shared(sequence(opener, closed(call, closer)));
    return sequence(one, repeat(sequence(text('\n'), one), 0, most - 1));
  }
  if (isList) return sequence(opener, listed(call, markup, most));
  return isBare ? separated(call, markup, most) : sequence(opener, separated(call, markup, most));
}

function callsInTalk(markup: CallMarkup, { call, most, opener, hasControl }: Ways & { hasControl: boolean }): GrammarNode {
  const { closer, isBare, isList } = markup;
  if (isBare) {
    // Text does not begin as a call does.
    const calls = separated(call, markup, most);
    return choice(calls, talkWithout('{', hasControl ? sequence(opener, calls) : undefined));
  }
  const written = closer === undefined ? (isList ? listed(call, markup, most) : separated(call, markup, most)) : closed(call, closer);
  return talkUntil({
    opener: hasControl ? opener : markup.opener,
    written,
    isRepeated: closer !== undefined && most > 1,
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
