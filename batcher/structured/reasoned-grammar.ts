/** ReasonedGrammar: any text up to the end of the reasoning, and behind it the answer in its form. */
import { REASONING_CLOSER, REASONING_OPENER } from '../reasoning/reasoning-syntax.ts';
import { talkUntil } from './calls/talk-graph.ts';
import { choice, EMPTY, type Grammar, mark, oneOf, repeat, sequence, shared } from './grammar.ts';
import { GrammarScope } from './grammar-scope.ts';
import type { ReasonedStructure } from './reasoned-structure.ts';

/** Around the marks. */
const SPACES = repeat(oneOf(' \t\n\r'), 0, 4);

export function reasonedGrammar({ start, openerTokenId, closerTokenId }: ReasonedStructure, answer: Grammar): Grammar {
  const scope = new GrammarScope();
  const answered = shared(scope.add('answer', answer));
  // Spelled out, it is looked for character by character.
  const closer = closerTokenId === undefined ? REASONING_CLOSER : mark(REASONING_CLOSER, closerTokenId);
  const thought = talkUntil({ opener: closer, written: EMPTY, isRepeated: false, isRequired: true });
  const reasoned = sequence(thought, SPACES, answered);
  if (start === 'begun') return { root: reasoned, rules: scope.rules };
  return { root: choice(answered, sequence(SPACES, mark(REASONING_OPENER, openerTokenId), reasoned)), rules: scope.rules };
}
