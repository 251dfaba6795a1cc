/**
 * Automaton: a grammar as states over bytes and control tokens, in plain arrays that threads can hand over. A rule of the grammar is a part of it
 * that others call and that returns to its caller. From each state that can be reached some end can be reached, by bytes that the vocabulary can write.
 *
 * The edges of state s are the entries from start[s] to start[s + 1] of their list.
 */
export interface EdgeList {
  start: Int32Array;
  entries: Int32Array;
}

export interface Automaton {
  stateCount: number;
  start: number;
  /** Triples: first byte, last byte, target. */
  bytes: EdgeList;
  /** Pairs: index in `controls`, target. */
  controlEdges: EdgeList;
  /** Targets. */
  epsilons: EdgeList;
  /** Pairs: first state of the rule, state to return to. */
  calls: EdgeList;
  /** 1 where a rule ends; ENDS_ONLY where besides nothing leads on. */
  isFinal: Uint8Array;
  /** So many tokens are enough from each state to the end of its rule; see ShortestEnds. */
  endTokens: Int32Array;
  /** Token ids of the control tokens that it knows. */
  controls: readonly number[];
  /** Bytes of one class are on the same edges everywhere. A class is a run of bytes. */
  classOfByte: Uint8Array;
  classCount: number;
}

/** Before it is known how far its ends are. */
export type UnmeasuredAutomaton = Omit<Automaton, 'endTokens'>;

export const ENDS_ONLY = 2;

/** What it takes in memory. */
export function automatonBytes(automaton: Automaton): number {
  const lists = [automaton.bytes, automaton.controlEdges, automaton.epsilons, automaton.calls];
  return (
    automaton.isFinal.byteLength +
    automaton.endTokens.byteLength +
    lists.reduce((sum, { start, entries }) => sum + start.byteLength + entries.byteLength, 0)
  );
}
