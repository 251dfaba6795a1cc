/** MaskMaker: which tokens may come next in a state of a grammar: each one whose bytes lead on, and end tokens where the answer may end. */
import type { TokenMask } from '../sampling/token-mask.ts';
import type { SpelledVocabulary } from './spelled-vocabulary.ts';
import { DEAD, type StateTable } from './state-table.ts';

export function makeMask(table: StateTable, state: number, vocabulary: SpelledVocabulary): TokenMask {
  const plainLength = plainLengthFrom(table, state, vocabulary);
  const mask: TokenMask =
    plainLength === undefined
      ? { words: vocabulary.emptyMask(), count: 0 }
      : { words: vocabulary.plainMasks[plainLength]!.slice(), count: vocabulary.plainCounts[plainLength]! };
  const add = adding(mask);
  table.walk(plainLength === undefined ? vocabulary.all : vocabulary.rest, state, add);
  for (const [index, id] of table.automaton.controls.entries()) if (table.afterControl(state, index) !== DEAD) add(id);
  if (table.mayEnd(state)) addEnds(add, vocabulary);
  return mask;
}

/**
 * Of the tokens that may come next those behind which `tokenCount` more are enough to complete the answer; undefined where none was found. An end token
 * completes it.
 */
export function makeClosingMask(
  { table, state, tokenCount }: { table: StateTable; state: number; tokenCount: number },
  vocabulary: SpelledVocabulary,
): TokenMask | undefined {
  const mask: TokenMask = { words: vocabulary.emptyMask(), count: 0 };
  const add = adding(mask);
  table.walk(vocabulary.all, state, (id, next) => {
    if (table.tokensToEnd(next) <= tokenCount) add(id);
  });
  for (const [index, id] of table.automaton.controls.entries()) {
    if (table.tokensToEnd(table.afterControl(state, index)) <= tokenCount) add(id);
  }
  if (table.mayEnd(state)) addEnds(add, vocabulary);
  return mask.count === 0 ? undefined : mask;
}

/** Puts a token that it does not have into a mask. */
function adding(mask: TokenMask): (id: number) => void {
  return id => {
    mask.words[id >>> 5]! |= 1 << (id & 31);
    mask.count++;
  };
}

function addEnds(add: (id: number) => void, { endTokenIds, vocabSize }: SpelledVocabulary): void {
  for (const id of endTokenIds) if (id < vocabSize) add(id);
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
