/**
 * Closure: all places of an automaton that are reached from some without writing anything. Within it a rule that is called has one list of callers,
 * however many there are and whenever they are found (the graph-structured stack of generalized LL parsing), so its cost grows with the number of
 * places and calls, not with the number of ways through them.
 */
import { type Automaton, ENDS_ONLY } from './automaton.ts';

/** What a rule returns to: a place, and what the rule of that place returns to in turn. */
export interface Frame {
  place: number;
  returns: number;
}

/** The return of the root rule: the answer may end. */
export const END_FRAME = 0;

/**
 * Usual grammars take some tens of steps. What is not reached within these is left out, wherever and whenever the grammar is followed; the answer
 * still fits.
 */
const MAX_WORK = 20_000;

/** A rule that is called in this closure. */
interface Called {
  callers: Frame[];
  /** It may write nothing, so whoever calls it goes on at once. */
  isPassed: boolean;
}

export class Closure {
  readonly #automaton: Automaton;
  readonly #framesOf: (returns: number) => readonly number[];
  readonly #frames: readonly Frame[];
  /** Returns of a place: numbers of the table, or below 0 -1 - (index in #called). */
  readonly #returnsAt = new Map<number, Set<number>>();
  readonly #open: number[] = [];
  readonly #called: Called[] = [];
  /** By the first place of the rule. */
  readonly #calledIndex = new Map<number, number>();
  mayEnd = false;
  /** Steps taken. */
  work = 0;

  constructor(automaton: Automaton, framesOf: (returns: number) => readonly number[], frames: readonly Frame[]) {
    this.#automaton = automaton;
    this.#framesOf = framesOf;
    this.#frames = frames;
  }

  reach(place: number, returns: number): void {
    this.work++;
    let known = this.#returnsAt.get(place);
    if (known === undefined) {
      known = new Set();
      this.#returnsAt.set(place, known);
    } else if (known.has(returns)) {
      return;
    }
    known.add(returns);
    this.#open.push(place, returns);
  }

  run(): void {
    const { epsilons, calls, isFinal } = this.#automaton;
    while (this.#open.length > 0 && this.work < MAX_WORK) {
      const returns = this.#open.pop()!;
      const place = this.#open.pop()!;
      for (let k = epsilons.start[place]!; k < epsilons.start[place + 1]!; k++) this.reach(epsilons.entries[k]!, returns);
      for (let k = calls.start[place]!; k < calls.start[place + 1]!; k += 2) this.#call(calls.entries[k]!, calls.entries[k + 1]!, returns);
      if (isFinal[place] !== 0) this.#return(returns);
    }
  }

  /** Places at which something is written, with all their returns. */
  *writing(): Iterable<[place: number, returns: ReadonlySet<number>]> {
    const { bytes, controlEdges } = this.#automaton;
    for (const entry of this.#returnsAt) {
      const place = entry[0];
      const writes = bytes.start[place] !== bytes.start[place + 1] || controlEdges.start[place] !== controlEdges.start[place + 1];
      if (writes) yield entry;
    }
  }

  callersOf(returns: number): readonly Frame[] {
    return this.#called[-1 - returns]!.callers;
  }

  #call(rule: number, back: number, returns: number): void {
    if (this.#automaton.isFinal[back] === ENDS_ONLY) {
      // A call at the very end of a rule: what is called returns where the caller would.
      this.reach(rule, returns);
      return;
    }
    let index = this.#calledIndex.get(rule);
    if (index === undefined) {
      index = this.#called.push({ callers: [], isPassed: false }) - 1;
      this.#calledIndex.set(rule, index);
    }
    const called = this.#called[index]!;
    called.callers.push({ place: back, returns });
    this.reach(rule, -1 - index);
    if (called.isPassed) this.reach(back, returns);
  }

  #return(returns: number): void {
    if (returns < 0) {
      const called = this.#called[-1 - returns]!;
      called.isPassed = true;
      for (const { place, returns: back } of called.callers) this.reach(place, back);
      return;
    }
    for (const frame of this.#framesOf(returns)) {
      const { place, returns: back } = this.#frames[frame]!;
      if (frame === END_FRAME) this.mayEnd = true;
      else this.reach(place, back);
    }
  }
}
