/** MaskMaker: which tokens may come next in a state of a grammar: each one whose bytes lead on, and end tokens where the answer may end. */
import type { TokenMask } from '../sampling/token-mask.ts';
import type { SpelledVocabulary } from './spelled-vocabulary.ts';
import { DEAD, type StateTable } from './state-table.ts';

export function makeMask(table: StateTable, state: number, vocabulary: SpelledVocabulary): TokenMask {
  const { vocabSize, endTokenIds } = vocabulary;
  const plainLength = plainLengthFrom(table, state, vocabulary);
  const words = plainLength === undefined ? vocabulary.emptyMask() : vocabulary.plainMasks[plainLength]!.slice();
  let count = plainLength === undefined ? 0 : vocabulary.plainCounts[plainLength]!;
  const add = (id: number): void => {
    words[id >>> 5]! |= 1 << (id & 31);
    count++;
  };
  table.walk(plainLength === undefined ? vocabulary.all : vocabulary.rest, state, add);
  for (const [index, id] of table.automaton.controls.entries()) if (table.afterControl(state, index) !== DEAD) add(id);
  if (table.mayEnd(state)) for (const id of endTokenIds) if (id < vocabSize) add(id);
  return { words, count };
}

/**
 * Of the tokens that may come next those behind which `tokenCount` more are enough to complete the answer; undefined where none was found. An end token
 * completes it.
 */
export function makeClosingMask(
  { table, state, tokenCount }: { table: StateTable; state: number; tokenCount: number },
  vocabulary: SpelledVocabulary,
): TokenMask | undefined {
  const words = vocabulary.emptyMask();
  let count = 0;
  const add = (id: number): void => {
    words[id >>> 5]! |= 1 << (id & 31);
    count++;
  };
  table.walk(vocabulary.all, state, (id, next) => {
    if (table.tokensToEnd(next) <= tokenCount) add(id);
  });
  for (const [index, id] of table.automaton.controls.entries()) {
    if (table.tokensToEnd(table.afterControl(state, index)) <= tokenCount) add(id);
  }
  if (table.mayEnd(state)) for (const id of vocabulary.endTokenIds) if (id < vocabulary.vocabSize) add(id);
  return count === 0 ? undefined : { words, count };
}

/** How many plain characters may follow, whichever they are, up to the longest token's; undefined where it depends on which. */
function plainLengthFrom(table: StateTable, state: number, { plainBytes, plainMasks }: SpelledVocabulary): number | undefined {
  const longest = plainMasks.length - 1;
  let current = state;
  for (let length = 0; length < longest; length++) {
    const next = table.afterAny(current, plainBytes);
    if (next === DEAD) return length;
    if (next === undefined) return undefined;
    if (next === current) return longest;
    current = next;
  }
  return longest;
}
