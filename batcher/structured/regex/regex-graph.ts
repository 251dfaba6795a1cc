/** RegexGraph: a regular expression as a graph over characters, matched against a whole text or, as JSON schemas mean it, anywhere in one. */
import { GrammarError } from '../grammar.ts';
import { CodePointSet } from '../text/code-point-set.ts';
import { type CharacterEdge, type CharacterGraph, graphFrom } from './character-graph.ts';
import { parseRegex, type RegexNode } from './regex-parser.ts';

/** Copies of repeated parts included. */
const MAX_PARTS = 8_000;
const MAX_REPEATS = 4_096;

/** `whole`: nothing stands before or behind the match. Throws GrammarError. */
export function regexGraph(pattern: string, match: 'whole' | 'anywhere'): CharacterGraph {
  const machine = new RegexMachine();
  const end = machine.state();
  const start = machine.before(parseRegex(pattern), end);
  return new Matching(machine, { start, end, match }).graph();
}

/** States with edges over characters, and edges over nothing, some only at an end of the text. */
interface MachineState {
  edges: CharacterEdge[];
  free: number[];
  anchors: { at: 'start' | 'end'; to: number }[];
}

class RegexMachine {
  readonly states: MachineState[] = [];

  state(): number {
    if (this.states.length >= MAX_PARTS)
      throw new GrammarError(`the pattern takes more than ${MAX_PARTS} states; its repetitions are too many`);
    return this.states.push({ edges: [], free: [], anchors: [] }) - 1;
  }

  /** The state before `node`, behind which comes `next`. */
  before(node: RegexNode, next: number): number {
    switch (node.kind) {
      case 'set': {
        const state = this.state();
        this.states[state]!.edges.push({ set: node.set, to: next });
        return state;
      }
      case 'anchor': {
        const state = this.state();
        this.states[state]!.anchors.push({ at: node.at, to: next });
        return state;
      }
      case 'sequence':
        return node.parts.reduceRight((target, part) => this.before(part, target), next);
      case 'choice': {
        const state = this.state();
        this.states[state]!.free.push(...node.parts.map(part => this.before(part, next)));
        return state;
      }
      case 'repeat':
        return this.#repeat(node, next);
    }
  }

  #repeat({ part, least, most }: { part: RegexNode; least: number; most: number }, next: number): number {
    if (least > MAX_REPEATS || (most !== Number.POSITIVE_INFINITY && most > MAX_REPEATS)) {
      throw new GrammarError(`a part of the pattern is repeated more than ${MAX_REPEATS} times`);
    }
    let state = next;
    if (most === Number.POSITIVE_INFINITY) {
      state = this.state();
      this.states[state]!.free.push(this.before(part, state), next);
    } else {
      for (let i = least; i < most; i++) {
        const skipping = this.state();
        this.states[skipping]!.free.push(this.before(part, state), next);
        state = skipping;
      }
    }
    for (let i = 0; i < least; i++) state = this.before(part, state);
    return state;
  }
}

/** Where a match stands: before it, in it or behind it; whether nothing was read yet; whether the text must have ended. */
interface Standing {
  part: 'ahead' | 'behind' | number;
  isAtStart: boolean;
  mustEnd: boolean;
}

class Matching {
  readonly #machine: RegexMachine;
  readonly #of: { start: number; end: number; match: 'whole' | 'anywhere' };

  constructor(machine: RegexMachine, of: { start: number; end: number; match: 'whole' | 'anywhere' }) {
    this.#machine = machine;
    this.#of = of;
  }

  graph(): CharacterGraph {
    const { start, match } = this.#of;
    const first: Standing = { part: match === 'whole' ? start : 'ahead', isAtStart: true, mustEnd: false };
    return graphFrom(first, keyOf, standing => this.#expand(standing));
  }

  /** Everything that is reached without reading a character, and the characters that can be read from there. */
  #expand(from: Standing): { edges: { set: CodePointSet; to: Standing }[]; isAccepting: boolean } {
    const edges: { set: CodePointSet; to: Standing }[] = [];
    const open = [from];
    const seen = new Set([keyOf(from)]);
    let isAccepting = false;
    const reach = (standing: Standing): void => {
      const key = keyOf(standing);
      if (seen.has(key)) return;
      seen.add(key);
      open.push(standing);
    };
    for (;;) {
      const standing = open.pop();
      if (standing === undefined) return { edges, isAccepting };
      const { part, isAtStart, mustEnd } = standing;
      const read = (set: CodePointSet, to: Standing['part']): void => {
        if (!mustEnd) edges.push({ set, to: { part: to, isAtStart: false, mustEnd: false } });
      };
      if (part === 'ahead') {
        read(CodePointSet.all, 'ahead');
        reach({ part: this.#of.start, isAtStart, mustEnd });
        continue;
      }
      if (part === 'behind') {
        isAccepting = true;
        read(CodePointSet.all, 'behind');
        continue;
      }
      const { edges: own, free, anchors } = this.#machine.states[part]!;
      for (const { set, to } of own) read(set, to);
      for (const to of free) reach({ part: to, isAtStart, mustEnd });
      for (const { at, to } of anchors) {
        if (at === 'end') reach({ part: to, isAtStart, mustEnd: true });
        else if (isAtStart) reach({ part: to, isAtStart, mustEnd });
      }
      if (part !== this.#of.end) continue;
      if (this.#of.match === 'whole') isAccepting = true;
      else reach({ part: 'behind', isAtStart, mustEnd });
    }
  }
}

function keyOf({ part, isAtStart, mustEnd }: Standing): string {
  return `${part}${isAtStart ? '^' : ''}${mustEnd ? '$' : ''}`;
}
