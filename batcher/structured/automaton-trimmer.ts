/**
 * AutomatonTrimmer: takes away what can never end, and refuses what could never be followed: a grammar that nothing fits, and one with a rule that
 * calls itself before it has written anything.
 */
import { type EdgeList, ENDS_ONLY, type UnmeasuredAutomaton } from './automaton.ts';
import { GrammarError } from './grammar.ts';

/** Lists as in the automaton's. */
export interface BuiltState {
  bytes: number[];
  controls: number[];
  epsilons: number[];
  calls: number[];
  /** A rule ends here. */
  isFinal: boolean;
}

export interface UntrimmedAutomaton {
  states: BuiltState[];
  start: number;
  controls: readonly number[];
  /** Of rules that have one, by their first state. */
  ruleNames: ReadonlyMap<number, string>;
}

/** Throws GrammarError. */
export function trimmed({ states, start, controls, ruleNames }: UntrimmedAutomaton): UnmeasuredAutomaton {
  const isProductive = productive(states);
  if (isProductive[start] === 0) throw new GrammarError('nothing that the model can write fits');
  for (const [index, state] of states.entries()) trim(state, isProductive[index] === 1, isProductive);
  refuseLeftRecursion(states, start, ruleNames);
  return {
    stateCount: states.length,
    start,
    bytes: edgeList(states, state => state.bytes),
    controlEdges: edgeList(states, state => state.controls),
    epsilons: edgeList(states, state => state.epsilons),
    calls: edgeList(states, state => state.calls),
    isFinal: Uint8Array.from(states, state => (state.isFinal ? (endsOnly(state) ? ENDS_ONLY : 1) : 0)),
    controls,
    ...byteClasses(states),
  };
}

function endsOnly({ bytes, controls, epsilons, calls }: BuiltState): boolean {
  return bytes.length + controls.length + epsilons.length + calls.length === 0;
}

function edgeList(states: readonly BuiltState[], entriesOf: (state: BuiltState) => readonly number[]): EdgeList {
  const start = new Int32Array(states.length + 1);
  for (const [index, state] of states.entries()) start[index + 1] = start[index]! + entriesOf(state).length;
  const entries = new Int32Array(start[states.length]!);
  for (const [index, state] of states.entries()) entries.set(entriesOf(state), start[index]!);
  return { start, entries };
}

/** 1 for each state from which the end of its rule can be reached. */
function productive(states: readonly BuiltState[]): Uint8Array {
  return leastFixpoint(states, ({ bytes, controls, epsilons, calls, isFinal }, holds) => {
    if (isFinal || epsilons.some(holds)) return true;
    for (let i = 2; i < bytes.length; i += 3) if (holds(bytes[i]!)) return true;
    for (let i = 1; i < controls.length; i += 2) if (holds(controls[i]!)) return true;
    for (let i = 0; i < calls.length; i += 2) if (holds(calls[i]!) && holds(calls[i + 1]!)) return true;
    return false;
  });
}

/** 1 for each state from which the end of its rule can be reached without writing anything. */
function nullable(states: readonly BuiltState[]): Uint8Array {
  return leastFixpoint(states, ({ epsilons, calls, isFinal }, holds) => {
    if (isFinal || epsilons.some(holds)) return true;
    for (let i = 0; i < calls.length; i += 2) if (holds(calls[i]!) && holds(calls[i + 1]!)) return true;
    return false;
  });
}

/** What follows from `isSo` of what it is asked about. Each state is looked at again only when one that it leads to has come to hold. */
function leastFixpoint(states: readonly BuiltState[], isSo: (state: BuiltState, holds: (index: number) => boolean) => boolean): Uint8Array {
  const result = new Uint8Array(states.length);
  const holds = (index: number): boolean => result[index] === 1;
  const waiting = new Map<number, number[]>();
  const queue: number[] = [];
  for (const [index, state] of states.entries()) {
    if (isSo(state, holds)) {
      result[index] = 1;
      queue.push(index);
      continue;
    }
    for (const target of targetsOf(state)) {
      const list = waiting.get(target);
      if (list === undefined) waiting.set(target, [index]);
      else list.push(index);
    }
  }
  for (;;) {
    const done = queue.pop();
    if (done === undefined) return result;
    for (const index of waiting.get(done) ?? []) {
      if (holds(index) || !isSo(states[index]!, holds)) continue;
      result[index] = 1;
      queue.push(index);
    }
  }
}

function* targetsOf({ bytes, controls, epsilons, calls }: BuiltState): Iterable<number> {
  yield* epsilons;
  for (let i = 2; i < bytes.length; i += 3) yield bytes[i]!;
  for (let i = 1; i < controls.length; i += 2) yield controls[i]!;
  yield* calls;
}

function trim(state: BuiltState, isKept: boolean, isProductive: Uint8Array): void {
  const keeps = (target: number): boolean => isKept && isProductive[target] === 1;
  state.epsilons = state.epsilons.filter(keeps);
  state.bytes = groups(state.bytes, 3)
    .filter(([, , target]) => keeps(target!))
    .flat();
  state.controls = groups(state.controls, 2)
    .filter(([, target]) => keeps(target!))
    .flat();
  state.calls = groups(state.calls, 2)
    .filter(([rule, back]) => keeps(rule!) && keeps(back!))
    .flat();
}

function groups(numbers: readonly number[], size: number): number[][] {
  const result: number[][] = [];
  for (let i = 0; i < numbers.length; i += size) result.push(numbers.slice(i, i + size));
  return result;
}

/** Of a rule that begins with itself, however far round, no end of its calls would be found. */
function refuseLeftRecursion(states: readonly BuiltState[], start: number, ruleNames: ReadonlyMap<number, string>): void {
  const isNullable = nullable(states);
  const verdicts = new Map<number, 'open' | 'done'>();
  const visit = (rule: number): void => {
    if (verdicts.get(rule) === 'done') return;
    if (verdicts.get(rule) === 'open') {
      const name = ruleNames.get(rule);
      throw new GrammarError(`${name === undefined ? 'a rule' : `the rule '${name}'`} may begin with itself (left recursion)`);
    }
    verdicts.set(rule, 'open');
    for (const called of leftmostCalls(states, rule, isNullable)) visit(called);
    verdicts.set(rule, 'done');
  };
  visit(start);
  for (const { calls } of states) for (let i = 0; i < calls.length; i += 2) visit(calls[i]!);
}

/** Rules that a rule may call before it has written anything. */
function leftmostCalls(states: readonly BuiltState[], rule: number, isNullable: Uint8Array): Set<number> {
  const called = new Set<number>();
  const seen = new Set([rule]);
  const open = [rule];
  for (;;) {
    const index = open.pop();
    if (index === undefined) return called;
    const { epsilons, calls } = states[index]!;
    const next = [...epsilons];
    for (let i = 0; i < calls.length; i += 2) {
      called.add(calls[i]!);
      if (isNullable[calls[i]!] === 1) next.push(calls[i + 1]!);
    }
    for (const target of next) {
      if (seen.has(target)) continue;
      seen.add(target);
      open.push(target);
    }
  }
}

function byteClasses(states: readonly BuiltState[]): Pick<UnmeasuredAutomaton, 'classOfByte' | 'classCount'> {
  const isFirst = new Uint8Array(257);
  for (const { bytes } of states) {
    for (let i = 0; i < bytes.length; i += 3) {
      isFirst[bytes[i]!] = 1;
      isFirst[bytes[i + 1]! + 1] = 1;
    }
  }
  const classOfByte = new Uint8Array(256);
  let current = 0;
  for (let byte = 0; byte < 256; byte++) {
    if (byte > 0 && isFirst[byte] === 1) current++;
    classOfByte[byte] = current;
  }
  return { classOfByte, classCount: current + 1 };
}
