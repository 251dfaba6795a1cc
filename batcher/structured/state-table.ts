/**
 * StateTable: the states that matching an automaton comes through, found as they are needed. A state is a set of places in the automaton, each with
 * what it returns to; equal sets are one state with one number, so what was found out about it (its successors, its mask) is known at once when
 * it comes again, in whatever answer.
 *
 * Places with the same returns are kept together, so the number of returns grows with the depth of nesting, not with the ways to get there.
 */
import type { Automaton } from './automaton.ts';
import { Closure, END_FRAME, type Frame } from './closure.ts';
import { FAR } from './shortest-ends.ts';
import type { ByteRange } from './text/utf8-ranges.ts';
import type { TokenTrie } from './token-trie.ts';

export const DEAD = 0;
const UNKNOWN = -1;
const MIXED = -1;
/** Of a grammar that is more ambiguous the places past these are dropped: the answer still fits. A check at compile time refuses such grammars. */
const MAX_PLACES = 512;
const FIRST_CAPACITY = 256;

export class StateTable {
  readonly automaton: Automaton;
  /** Bytes first, then one for each control token. */
  readonly #symbolCount: number;
  /** Pairs: place, returns; ascending by place. */
  readonly #places: Int32Array[] = [new Int32Array(0)];
  readonly #mayEnd: boolean[] = [false];
  /** Of states and of returns: so many tokens are enough to the end of the answer. */
  readonly #endTokens: number[] = [FAR];
  readonly #returnTokens: number[] = [FAR];
  readonly #ids = new Map<string, number>([['', DEAD]]);
  #successors: Int32Array;
  /** By the places that they begin with. */
  readonly #closed = new Map<string, number>();
  /** Of the one set of characters that is asked about. */
  readonly #afterAny = new Map<number, number>();
  /** A return: a place and the returns of that place in turn. */
  readonly #frames: Frame[] = [{ place: -1, returns: -1 }];
  readonly #frameIds = new Map<number, Map<number, number>>();
  /** Sets of frames, ascending. */
  readonly #returns: (readonly number[])[] = [[]];
  readonly #returnIds = new Map<string, number>([['', 0]]);
  #placeBytes = 0;
  #work = 0;
  #workLimit = Number.POSITIVE_INFINITY;
  /** A byte of each class. */
  readonly #byteOfClass: Uint8Array;
  readonly start: number;

  constructor(automaton: Automaton) {
    this.automaton = automaton;
    this.#symbolCount = automaton.classCount + automaton.controls.length;
    this.#byteOfClass = new Uint8Array(automaton.classCount);
    for (let byte = 0; byte < 256; byte++) this.#byteOfClass[automaton.classOfByte[byte]!] = byte;
    this.#successors = new Int32Array(FIRST_CAPACITY * this.#symbolCount).fill(UNKNOWN);
    this.#successors.fill(DEAD, 0, this.#symbolCount);
    this.start = this.#close([automaton.start, this.#returnsOf([END_FRAME])]);
  }

  get stateCount(): number {
    return this.#places.length;
  }

  /** Places looked at so far. */
  get work(): number {
    return this.#work;
  }

  /** From here on no successor that takes more work than this is looked for; there seem to be none. */
  limitWork(places: number): void {
    this.#workLimit = this.#work + places;
  }

  /** Roughly what it takes in memory. */
  get bytes(): number {
    return this.#successors.byteLength + this.#placeBytes + this.#places.length * 200 + (this.#frames.length + this.#returns.length) * 150;
  }

  /** The state after a byte; DEAD where the byte does not fit. */
  afterByte(state: number, byte: number): number {
    return this.#after(state, this.automaton.classOfByte[byte]!);
  }

  /** The state after the control token of this index in the automaton's list. */
  afterControl(state: number, index: number): number {
    return this.#after(state, this.automaton.classCount + index);
  }

  /** The answer may end here. */
  mayEnd(state: number): boolean {
    return this.#mayEnd[state]!;
  }

  /** The answer can only end here. */
  mustEnd(state: number): boolean {
    return this.#places[state]!.length === 0 && state !== DEAD;
  }

  /** So many tokens are enough to complete the answer from here; FAR where none are. */
  tokensToEnd(state: number): number {
    return this.#endTokens[state]!;
  }

  placeCount(state: number): number {
    return this.#places[state]!.length / 2;
  }

  /**
   * Calls `found` for each token of the tree that may come next, with the state behind it, as far as the work goes. This is the innermost loop of
   * constrained decoding: it reads the table of successors itself.
   */
  walk(trie: TokenTrie, state: number, found: (tokenId: number, next: number) => void): void {
    const { byteAt, depthAt, endAt, tokenAt, twinOf, nodeCount, maxDepth } = trie;
    const { classOfByte } = this.automaton;
    const symbolCount = this.#symbolCount;
    const path = new Int32Array(maxDepth + 1);
    path[0] = state;
    let successors = this.#successors;
    for (let node = 0; node < nodeCount; ) {
      const depth = depthAt[node]!;
      const from = path[depth - 1]!;
      const symbol = classOfByte[byteAt[node]!]!;
      let next = successors[from * symbolCount + symbol]!;
      if (next === UNKNOWN) {
        next = this.#after(from, symbol);
        successors = this.#successors;
      }
      if (next === DEAD) {
        node = endAt[node]!;
        continue;
      }
      path[depth] = next;
      for (let tokenId = tokenAt[node]!; tokenId >= 0; tokenId = twinOf[tokenId]!) found(tokenId, next);
      node++;
    }
  }

  /** The state after any of the characters whose UTF-8 is given; undefined where they lead to different states. */
  afterAny(state: number, characters: readonly (readonly ByteRange[])[]): number | undefined {
    const known = this.#afterAny.get(state);
    if (known !== undefined) return known === MIXED ? undefined : known;
    const ends = new Set<number>();
    for (const ranges of characters) {
      let reached = new Set([state]);
      for (const range of ranges) reached = this.#afterRange(reached, range);
      for (const end of reached) ends.add(end);
      if (ends.size > 1) break;
    }
    // What the work did not suffice for is not known.
    if (this.#work > this.#workLimit) return undefined;
    const [end] = ends;
    const result = ends.size === 1 ? end! : MIXED;
    this.#afterAny.set(state, result);
    return result === MIXED ? undefined : result;
  }

  #afterRange(from: ReadonlySet<number>, [first, last]: ByteRange): Set<number> {
    const { classOfByte } = this.automaton;
    const reached = new Set<number>();
    for (let byte = first; byte <= last; byte++) {
      // Classes are runs of bytes.
      if (byte > first && classOfByte[byte] === classOfByte[byte - 1]) continue;
      for (const state of from) reached.add(this.#after(state, classOfByte[byte]!));
    }
    return reached;
  }

  /** The state of another table of the same automaton in this one. */
  adopt(from: StateTable, state: number): number {
    const frames = new Map<number, number>([[END_FRAME, END_FRAME]]);
    const returns = new Map<number, number>();
    const adoptReturns = (id: number): number => {
      const known = returns.get(id);
      if (known !== undefined) return known;
      // A frame is younger than those that it returns to, so this ends; the nesting may be deeper than calls can be.
      const open = [id];
      for (;;) {
        const current = open.at(-1);
        if (current === undefined) return returns.get(id)!;
        const missing = from.#returns[current]!.filter(frame => !frames.has(frame) && !returns.has(from.#frames[frame]!.returns));
        if (missing.length > 0) {
          open.push(...missing.map(frame => from.#frames[frame]!.returns));
          continue;
        }
        open.pop();
        for (const frame of from.#returns[current]!) {
          if (frames.has(frame)) continue;
          const { place, returns: next } = from.#frames[frame]!;
          frames.set(frame, this.#frameOf(place, returns.get(next)!));
        }
        returns.set(current, this.#returnsOf(from.#returns[current]!.map(frame => frames.get(frame)!)));
      }
    };
    const places = from.#places[state]!.slice();
    for (let i = 1; i < places.length; i += 2) places[i] = adoptReturns(places[i]!);
    return this.#stateOf(places, from.#mayEnd[state]!);
  }

  #after(state: number, symbol: number): number {
    const at = state * this.#symbolCount + symbol;
    const known = this.#successors[at]!;
    if (known !== UNKNOWN) return known;
    if (this.#work > this.#workLimit) return DEAD;
    const { bytes, controlEdges, classCount } = this.automaton;
    const places = this.#places[state]!;
    this.#work += places.length;
    const reached: number[] = [];
    for (let i = 0; i < places.length; i += 2) {
      const place = places[i]!;
      if (symbol < classCount) {
        const { start, entries } = bytes;
        const byte = this.#byteOfClass[symbol]!;
        for (let k = start[place]!; k < start[place + 1]!; k += 3) {
          if (entries[k]! <= byte && byte <= entries[k + 1]!) reached.push(entries[k + 2]!, places[i + 1]!);
        }
      } else {
        const { start, entries } = controlEdges;
        for (let k = start[place]!; k < start[place + 1]!; k += 2) {
          if (entries[k] === symbol - classCount) reached.push(entries[k + 1]!, places[i + 1]!);
        }
      }
    }
    let next = DEAD;
    if (reached.length > 0) {
      const key = reached.join();
      const before = this.#closed.get(key);
      next = before ?? this.#close(reached);
      if (before === undefined) this.#closed.set(key, next);
    }
    this.#successors[at] = next;
    return next;
  }

  /** Follows everything that writes nothing: the state that these places (pairs with their returns) are. */
  #close(seeds: readonly number[]): number {
    const closure = new Closure(this.automaton, id => this.#returns[id]!, this.#frames);
    for (let i = 0; i < seeds.length; i += 2) closure.reach(seeds[i]!, seeds[i + 1]!);
    closure.run();
    this.#work += closure.work;
    const fresh = new Map<number, number>();
    const interned = (returns: number): number => {
      if (returns >= 0) return returns;
      let id = fresh.get(returns);
      if (id === undefined) {
        // What a rule returns to lies outside of it, so this ends.
        id = this.#returnsOf(closure.callersOf(returns).map(({ place, returns: back }) => this.#frameOf(place, interned(back))));
        fresh.set(returns, id);
      }
      return id;
    };
    const places: number[] = [];
    for (const [place, returns] of closure.writing()) {
      const [first] = returns;
      const all = returns.size === 1 ? interned(first!) : this.#returnsOf([...returns].flatMap(one => this.#returns[interned(one)]!));
      places.push(place, all);
    }
    return this.#stateOf(sortedPairs(places).subarray(0, MAX_PLACES * 2), closure.mayEnd);
  }

  #stateOf(places: Int32Array, mayEnd: boolean): number {
    const key = `${mayEnd ? '!' : ''}${places.join()}`;
    const known = this.#ids.get(key);
    if (known !== undefined) return known;
    const id = this.#places.length;
    this.#ids.set(key, id);
    this.#places.push(places.slice());
    this.#placeBytes += places.byteLength * 4;
    this.#mayEnd.push(mayEnd);
    let nearest = mayEnd ? 0 : FAR;
    for (let i = 0; i < places.length; i += 2) {
      nearest = Math.min(nearest, this.automaton.endTokens[places[i]!]! + this.#returnTokens[places[i + 1]!]!);
    }
    this.#endTokens.push(nearest);
    if ((id + 1) * this.#symbolCount > this.#successors.length) {
      const larger = new Int32Array(this.#successors.length * 2).fill(UNKNOWN, this.#successors.length);
      larger.set(this.#successors);
      this.#successors = larger;
    }
    return id;
  }

  #frameOf(place: number, returns: number): number {
    let byReturns = this.#frameIds.get(place);
    if (byReturns === undefined) {
      byReturns = new Map();
      this.#frameIds.set(place, byReturns);
    }
    let id = byReturns.get(returns);
    if (id === undefined) {
      id = this.#frames.push({ place, returns }) - 1;
      byReturns.set(returns, id);
    }
    return id;
  }

  #returnsOf(frames: readonly number[]): number {
    const ascending = frames.length < 2 ? frames : [...new Set(frames)].sort((a, b) => a - b);
    const key = ascending.join();
    let id = this.#returnIds.get(key);
    if (id === undefined) {
      id = this.#returns.push(ascending) - 1;
      this.#returnIds.set(key, id);
      this.#returnTokens.push(this.#tokensFrom(ascending));
    }
    return id;
  }

  #tokensFrom(frames: readonly number[]): number {
    let nearest = FAR;
    for (const frame of frames) {
      if (frame === END_FRAME) return 0;
      const { place, returns } = this.#frames[frame]!;
      nearest = Math.min(nearest, this.automaton.endTokens[place]! + this.#returnTokens[returns]!);
    }
    return nearest;
  }
}

function sortedPairs(pairs: readonly number[]): Int32Array {
  const order = Array.from({ length: pairs.length / 2 }, (_, index) => index).sort((a, b) => pairs[a * 2]! - pairs[b * 2]!);
  const result = new Int32Array(pairs.length);
  for (const [at, index] of order.entries()) {
    result[at * 2] = pairs[index * 2]!;
    result[at * 2 + 1] = pairs[index * 2 + 1]!;
  }
  return result;
}
