/**
 * ShortestEnds: how few tokens lead from each place of an automaton to the end of its rule, so that an answer can be brought to its end before its room
 * is used up. Never less than it takes: a text is counted byte by byte, but where nothing else can follow, by the tokens that spell it.
 */
import type { UnmeasuredAutomaton } from './automaton.ts';
import type { TokenTree } from './token-trie.ts';

/** More tokens than an answer has room for. */
export const FAR = 2 ** 18;
/** Longer tokens are not looked for. */
const MAX_TOKEN_BYTES = 32;

/** [stateCount]: tokens; FAR where the end is further off or not reached. */
export function shortestEnds(automaton: UnmeasuredAutomaton, tokens: TokenTree): Int32Array {
  const search = new EndSearch(automaton.stateCount);
  addSteps(search, automaton);
  addSpelledTexts(search, automaton, tokens);
  for (let place = 0; place < automaton.stateCount; place++) if (automaton.isFinal[place] !== 0) search.offer(place, 0);
  return search.run();
}

function addSteps(search: EndSearch, { stateCount, bytes, controlEdges, epsilons, calls }: UnmeasuredAutomaton): void {
  for (let place = 0; place < stateCount; place++) {
    for (let k = bytes.start[place]!; k < bytes.start[place + 1]!; k += 3) search.addStep(place, bytes.entries[k + 2]!, 1);
    for (let k = controlEdges.start[place]!; k < controlEdges.start[place + 1]!; k += 2)
      search.addStep(place, controlEdges.entries[k + 1]!, 1);
    for (let k = epsilons.start[place]!; k < epsilons.start[place + 1]!; k++) search.addStep(place, epsilons.entries[k]!, 0);
    for (let k = calls.start[place]!; k < calls.start[place + 1]!; k += 2) search.addCall(place, calls.entries[k]!, calls.entries[k + 1]!);
  }
}

/** One step for each token of several bytes along a text that must follow. */
function addSpelledTexts(search: EndSearch, automaton: UnmeasuredAutomaton, { byteAt, depthAt, endAt, tokenAt }: TokenTree): void {
  const forced = forcedBytes(automaton);
  const first = new Int32Array(256).fill(-1);
  for (let node = 0; node < byteAt.length; node = endAt[node]!) first[byteAt[node]!] = node;
  for (let place = 0; place < automaton.stateCount; place++) {
    let step = forced(place);
    if (step === undefined) continue;
    let node = first[step.byte]!;
    for (let length = 1; node !== -1 && length <= MAX_TOKEN_BYTES; length++) {
      const { to } = step;
      if (length > 1 && tokenAt[node]! >= 0) search.addStep(place, to, 1);
      step = forced(to);
      if (step === undefined) break;
      const end = endAt[node]!;
      let child = node + 1;
      while (child < end && depthAt[child] === length + 1 && byteAt[child] !== step.byte) child = endAt[child]!;
      node = child < end ? child : -1;
    }
  }
}

/** The only byte that can follow a place, as far as its own rule tells; undefined where there are others, or none. */
function forcedBytes({ bytes, controlEdges, epsilons, calls, isFinal }: UnmeasuredAutomaton) {
  const countOf = ({ start }: { start: Int32Array }, place: number): number => start[place + 1]! - start[place]!;
  return (from: number): { byte: number; to: number } | undefined => {
    let place = from;
    // States over nothing in a row are few; a ring of them would be left recursion, which is refused.
    for (let free = 0; free < 8; free++) {
      if (isFinal[place] !== 0 || countOf(calls, place) > 0 || countOf(controlEdges, place) > 0) return undefined;
      const byteCount = countOf(bytes, place);
      const freeCount = countOf(epsilons, place);
      if (byteCount === 3 && freeCount === 0) {
        const k = bytes.start[place]!;
        return bytes.entries[k] === bytes.entries[k + 1] ? { byte: bytes.entries[k]!, to: bytes.entries[k + 2]! } : undefined;
      }
      if (byteCount > 0 || freeCount !== 1) return undefined;
      place = epsilons.entries[epsilons.start[place]!]!;
    }
    return undefined;
  };
}

/**
 * Shortest ways backwards from the ends, in the order of their length (Dijkstra; with calls, whose two parts add up: Knuth, A generalization of
 * Dijkstra's algorithm, 1977).
 */
class EndSearch {
  readonly #least: Int32Array;
  readonly #isSettled: Uint8Array;
  /** By the place that is led to: pairs of a place before it and a weight; and of calls triples: caller, the other part. */
  readonly #stepsTo: number[][];
  readonly #callsOf: number[][];
  /** Places that were offered a length, by length. */
  readonly #offered: number[][] = [];

  constructor(count: number) {
    this.#least = new Int32Array(count).fill(FAR);
    this.#isSettled = new Uint8Array(count);
    this.#stepsTo = Array.from({ length: count }, () => []);
    this.#callsOf = Array.from({ length: count }, () => []);
  }

  addStep(from: number, to: number, weight: number): void {
    this.#stepsTo[to]!.push(from, weight);
  }

  addCall(from: number, rule: number, back: number): void {
    this.#callsOf[rule]!.push(from, back);
    if (back !== rule) this.#callsOf[back]!.push(from, rule);
  }

  offer(place: number, length: number): void {
    if (length >= this.#least[place]!) return;
    this.#least[place] = length;
    this.#offered[length] ??= [];
    this.#offered[length].push(place);
  }

  run(): Int32Array {
    // Lists are added meanwhile, all of them further on.
    for (let length = 0; length < this.#offered.length; length++) this.#settle(this.#offered[length], length);
    return this.#least;
  }

  /** The list may grow meanwhile, by steps over nothing. */
  #settle(places: number[] | undefined, length: number): void {
    if (places === undefined) return;
    for (const place of places) {
      if (this.#isSettled[place] === 1 || this.#least[place] !== length) continue;
      this.#isSettled[place] = 1;
      const steps = this.#stepsTo[place]!;
      for (let i = 0; i < steps.length; i += 2) this.offer(steps[i]!, length + steps[i + 1]!);
      const calls = this.#callsOf[place]!;
      for (let i = 0; i < calls.length; i += 2) {
        const other = calls[i + 1]!;
        if (this.#isSettled[other] === 1) this.offer(calls[i]!, length + this.#least[other]!);
      }
    }
  }
}
