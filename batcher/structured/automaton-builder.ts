/**
 * AutomatonBuilder: turns a grammar into an automaton, from the ends of texts to their beginnings, so that each part is built onto what follows it.
 * Its size is bounded; a part that nothing fits or that no vocabulary token spells is left out, and a grammar of which nothing is left is refused.
 */
import type { UnmeasuredAutomaton } from './automaton.ts';
import { type BuiltState, trimmed } from './automaton-trimmer.ts';
import { type Grammar, GrammarError, type GrammarNode, type GraphNode, type ListNode, repeat, shared } from './grammar.ts';
import { type ByteRange, utf8Ranges } from './text/utf8-ranges.ts';

/** About 20 ms to build on a slow core. */
const MAX_STATES = 40_000;
/** A part that is repeated more often is made a rule of its own, which takes a state each time instead of all of its own. */
const INLINE_COPIES = 8;
/** Of more repetitions blocks are made, so that their count costs hardly anything. */
const MANY_COPIES = 256;
const BLOCK_COPIES = 128;

/** `writable` tells of each byte whether some token is that byte alone. Throws GrammarError. */
export function buildAutomaton(grammar: Grammar, writable: Uint8Array): UnmeasuredAutomaton {
  return new AutomatonBuilder(grammar, writable).build();
}

class AutomatonBuilder {
  readonly #grammar: Grammar;
  readonly #writable: Uint8Array;
  readonly #states: BuiltState[] = [];
  /** First states of rules; filled in when a rule is met, built later, so that rules may call each other. */
  readonly #rules = new Map<string | GrammarNode, number>();
  readonly #ruleNames = new Map<number, string>();
  readonly #unbuilt: { node: GrammarNode; start: number }[] = [];
  readonly #controls: number[] = [];

  constructor(grammar: Grammar, writable: Uint8Array) {
    this.#grammar = grammar;
    this.#writable = writable;
  }

  build(): UnmeasuredAutomaton {
    const start = this.#ruleOf(this.#grammar.root, this.#grammar.root);
    for (;;) {
      const rule = this.#unbuilt.pop();
      if (rule === undefined) break;
      const end = this.#state();
      this.#states[end]!.isFinal = true;
      this.#states[rule.start]!.epsilons.push(this.#onto(rule.node, end));
    }
    return trimmed({ states: this.#states, start, controls: this.#controls, ruleNames: this.#ruleNames });
  }

  /** The state before `node`, behind which comes `next`. */
  #onto(node: GrammarNode, next: number): number {
    switch (node.kind) {
      case 'never':
        return this.#state();
      case 'bytes':
        return node.bytes.reduceRight((target, byte) => this.#byteEdge([byte, byte], target), next);
      case 'character':
        return this.#character(node.set, next);
      case 'control': {
        const state = this.#state();
        this.#states[state]!.controls.push(this.#controlIndex(node.tokenId), next);
        return state;
      }
      case 'sequence':
        return node.parts.reduceRight((target, part) => this.#onto(part, target), next);
      case 'choice': {
        const targets = node.parts.map(part => this.#onto(part, next));
        return this.#fork(...targets);
      }
      case 'repeat':
        return this.#repeat(node, next);
      case 'list':
        return this.#list(node, next);
      case 'graph':
        return this.#graph(node, next);
      case 'shared':
        return this.#call(this.#ruleOf(node.part, node.part), next);
      case 'rule': {
        const body = this.#grammar.rules.get(node.name);
        if (body === undefined) throw new GrammarError(`there is no rule named '${node.name}'`);
        return this.#call(this.#ruleOf(node.name, body), next);
      }
    }
  }

  #character(set: Parameters<typeof utf8Ranges>[0], next: number): number {
    const state = this.#state();
    const edges = this.#states[state]!.bytes;
    // Sequences that end alike share their end.
    const tails = new Map<string, number>();
    for (const sequence of utf8Ranges(set)) {
      let target = next;
      for (let i = sequence.length - 1; i > 0; i--) {
        const key = `${sequence[i]!.join('-')}>${target}`;
        target = tails.get(key) ?? this.#byteEdge(sequence[i]!, target);
        tails.set(key, target);
      }
      this.#pushEdge(edges, sequence[0]!, target);
    }
    return state;
  }

  #repeat({ part, least, most }: { part: GrammarNode; least: number; most: number }, next: number): number {
    const isEndless = most === Number.POSITIVE_INFINITY;
    const copies = isEndless ? least + 1 : most;
    const body: GrammarNode = copies > INLINE_COPIES && isLarge(part) ? shared(part) : part;
    let state = next;
    if (isEndless) {
      state = this.#state();
      this.#states[state]!.epsilons.push(this.#onto(body, state), next);
    } else {
      state = this.#upTo(body, most - least, next);
    }
    return this.#times(body, least, state);
  }

  /** Exactly so many; a great many as blocks of many. */
  #times(body: GrammarNode, count: number, next: number): number {
    let state = next;
    if (count > MANY_COPIES) {
      const block = shared(repeat(body, BLOCK_COPIES, BLOCK_COPIES));
      for (let i = 0; i < Math.floor(count / BLOCK_COPIES); i++) state = this.#onto(block, state);
    }
    for (let i = 0; i < (count > MANY_COPIES ? count % BLOCK_COPIES : count); i++) state = this.#onto(body, state);
    return state;
  }

  /** Up to so many; of a great many whole blocks first, then less than a block. */
  #upTo(body: GrammarNode, count: number, next: number): number {
    if (count <= MANY_COPIES) {
      let state = next;
      for (let i = 0; i < count; i++) state = this.#fork(this.#onto(body, state), next);
      return state;
    }
    const block = shared(repeat(body, BLOCK_COPIES, BLOCK_COPIES));
    const lessThanBlock = this.#onto(shared(repeat(body, 0, BLOCK_COPIES - 1)), next);
    let state = this.#upTo(body, count % BLOCK_COPIES, next);
    for (let i = 0; i < Math.floor(count / BLOCK_COPIES); i++) state = this.#fork(this.#onto(block, state), lessThanBlock);
    return state;
  }

  #list(list: ListNode, next: number): number {
    const { items, rest, separator } = list;
    const requiredCount = items.filter(item => item.isRequired).length;
    const least = list.least ?? 0;
    const most = list.most ?? Number.POSITIVE_INFINITY;
    const isCounted = least > requiredCount || (rest === undefined ? most < items.length : most !== Number.POSITIVE_INFINITY);
    if (isCounted) return this.#countedList({ items, rest, separator }, { least, most }, next);
    let some = next;
    let none = next;
    if (rest !== undefined) {
      some = this.#state();
      const again = this.#onto(rest, some);
      this.#states[some]!.epsilons.push(this.#onto(separator, again), next);
      none = this.#fork(again, next);
    }
    for (const { node, isRequired } of items.toReversed()) {
      const item = this.#onto(node, some);
      const separated = this.#onto(separator, item);
      none = isRequired ? item : this.#fork(item, none);
      some = isRequired ? separated : this.#fork(separated, some);
    }
    return none;
  }

  /** The same with a count of what was written so far in each state. */
  #countedList(
    { items, rest, separator }: ListNode | Omit<ListNode, 'kind'>,
    bounds: { least: number; most: number },
    next: number,
  ): number {
    const { least, most } = bounds;
    // Past this count nothing depends on it any more.
    const cap = most === Number.POSITIVE_INFINITY ? Math.max(least, 1) : most;
    const up = (count: number): number => (most === Number.POSITIVE_INFINITY ? Math.min(count + 1, cap) : count + 1);
    const entry = (rule: GrammarNode, count: number, after: number): number => {
      const item = this.#onto(rule, after);
      return count === 0 ? item : this.#onto(separator, item);
    };
    let row = Array.from({ length: cap + 1 }, () => this.#state());
    const more = rest === undefined ? undefined : shared(rest);
    for (const [count, state] of row.entries()) {
      const { epsilons } = this.#states[state]!;
      if (count >= least) epsilons.push(next);
      if (more !== undefined && up(count) <= cap) epsilons.push(entry(more, count, row[up(count)]!));
    }
    for (const { node, isRequired } of items.toReversed()) {
      const item = shared(node);
      const after = row;
      row = after.map((skipped, count) => {
        const taken = up(count) <= cap ? [entry(item, count, after[up(count)]!)] : [];
        return this.#fork(...taken, ...(isRequired ? [] : [skipped]));
      });
    }
    return row[0]!;
  }

  #graph({ states }: GraphNode, next: number): number {
    const first = states.map(() => this.#state());
    for (const [index, { edges, isAccepting }] of states.entries()) {
      const { epsilons } = this.#states[first[index]!]!;
      if (isAccepting) epsilons.push(next);
      for (const { node, to } of edges) epsilons.push(this.#onto(node, first[to]!));
    }
    return first[0] ?? this.#state();
  }

  #call(rule: number, next: number): number {
    const state = this.#state();
    this.#states[state]!.calls.push(rule, next);
    return state;
  }

  #ruleOf(key: string | GrammarNode, node: GrammarNode): number {
    let start = this.#rules.get(key);
    if (start === undefined) {
      start = this.#state();
      this.#rules.set(key, start);
      if (typeof key === 'string') this.#ruleNames.set(start, key);
      this.#unbuilt.push({ node, start });
    }
    return start;
  }

  #controlIndex(tokenId: number): number {
    const known = this.#controls.indexOf(tokenId);
    return known === -1 ? this.#controls.push(tokenId) - 1 : known;
  }

  #fork(...targets: number[]): number {
    if (targets.length === 1) return targets[0]!;
    const state = this.#state();
    this.#states[state]!.epsilons.push(...targets);
    return state;
  }

  #byteEdge(range: ByteRange, target: number): number {
    const state = this.#state();
    this.#pushEdge(this.#states[state]!.bytes, range, target);
    return state;
  }

  /** The bytes of the range that can be written. */
  #pushEdge(edges: number[], [first, last]: ByteRange, target: number): void {
    for (let byte = first; byte <= last; byte++) {
      if (this.#writable[byte] === 0) continue;
      let end = byte;
      while (end < last && this.#writable[end + 1] !== 0) end++;
      edges.push(byte, end, target);
      byte = end;
    }
  }

  #state(): number {
    if (this.#states.length >= MAX_STATES) {
      throw new GrammarError(
        `it takes more than ${MAX_STATES} states; fewer or smaller repetitions, alternatives or properties are needed`,
      );
    }
    this.#states.push({ bytes: [], controls: [], epsilons: [], calls: [], isFinal: false });
    return this.#states.length - 1;
  }
}

function isLarge(node: GrammarNode): boolean {
  if (node.kind === 'bytes') return node.bytes.length > 2;
  if (node.kind === 'character') return node.set.ranges.some(([, last]) => last > 0x7f);
  return node.kind !== 'rule' && node.kind !== 'shared';
}
