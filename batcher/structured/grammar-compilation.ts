/**
 * GrammarCompilation: from a structure to its automaton, in one go; and what a compiler in a thread of its own is told and tells. An automaton that
 * takes too many places at once is refused here, before anybody waits for its masks.
 */
import type { Automaton } from './automaton.ts';
import { buildAutomaton } from './automaton-builder.ts';
import { GrammarError } from './grammar.ts';
import type { AnswerForm } from './reasoned-structure.ts';
import { shortestEnds } from './shortest-ends.ts';
import type { Spelling } from './spelled-vocabulary.ts';
import { DEAD, StateTable } from './state-table.ts';
import { structureGrammar } from './structure-grammar.ts';

export type CompileReply =
  | { automaton: Automaton }
  | { refusal: { message: string; where: string | undefined; param?: string | undefined } };

/** A try of the automaton: so many texts of so many bytes, and the places to look at for each of its bytes' classes on average. */
const PROBES = 4;
const PROBE_BYTES = 48;
const MAX_PROBE_WORK = 300;

/** Throws GrammarError. */
export function compileStructure(structure: AnswerForm, { writable, all }: Spelling): Automaton {
  const built = buildAutomaton(structureGrammar(structure), writable);
  const automaton = { ...built, endTokens: shortestEnds(built, all) };
  probe(automaton, writable);
  return automaton;
}

/** Follows some texts that fit, chosen in a fixed way. */
function probe(automaton: Automaton, writable: Uint8Array): void {
  const table = new StateTable(automaton);
  const before = table.work;
  let draw = 1;
  let byteCount = 1;
  for (let text = 0; text < PROBES; text++) {
    let state = table.start;
    for (let i = 0; i < PROBE_BYTES && state !== DEAD; i++) {
      draw = (Math.imul(draw, 1_664_525) + 1_013_904_223) >>> 0;
      state = someSuccessor(table, state, { writable, from: draw >>> 8 });
      byteCount++;
      if ((table.work - before) / byteCount <= MAX_PROBE_WORK * automaton.classCount) continue;
      throw new GrammarError('it is too ambiguous: too many of its parts may fit the same text at once');
    }
  }
}

function someSuccessor(table: StateTable, state: number, { writable, from }: { writable: Uint8Array; from: number }): number {
  for (let i = 0; i < 256; i++) {
    const byte = (from + i) & 0xff;
    const next = writable[byte] === 0 ? DEAD : table.afterByte(state, byte);
    if (next !== DEAD) return next;
  }
  return DEAD;
}
