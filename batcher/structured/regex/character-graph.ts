/**
 * CharacterGraph: a set of texts as states over characters: what patterns, formats, lengths and forbidden names of strings become before they are
 * combined. State 0 is the first; every state lies on a way to an accepting one. Sizes are bounded.
 */
import { GrammarError, type GrammarNode, type GraphNode, shared } from '../grammar.ts';
import { CodePointSet } from '../text/code-point-set.ts';

export interface CharacterEdge {
  set: CodePointSet;
  to: number;
}

export interface CharacterState {
  edges: readonly CharacterEdge[];
  isAccepting: boolean;
}

export type CharacterGraph = readonly CharacterState[];

const MAX_STATES = 8_000;
const MAX_EDGES = 60_000;

/** Any text. */
export const ANY_TEXT: CharacterGraph = [{ edges: [{ set: CodePointSet.all, to: 0 }], isAccepting: true }];

/** Makes the states that are reached from `first`; `expand` gives a state's edges to keys of other states. */
export function graphFrom<State>(
  first: State,
  keyOf: (state: State) => string | number,
  expand: (state: State) => { edges: readonly { set: CodePointSet; to: State }[]; isAccepting: boolean },
): CharacterGraph {
  const indices = new Map<string | number, number>([[keyOf(first), 0]]);
  const found = [first];
  let edgeCount = 0;
  const states: CharacterState[] = [];
  for (let at = 0; at < found.length; at++) {
    const { edges, isAccepting } = expand(found[at]!);
    const numbered = edges.flatMap(({ set, to }) => {
      if (set.isEmpty) return [];
      edgeCount++;
      const key = keyOf(to);
      let index = indices.get(key);
      if (index === undefined) {
        if (found.length >= MAX_STATES || edgeCount >= MAX_EDGES)
          throw new GrammarError('the patterns and lengths of a string are too large together');
        index = found.push(to) - 1;
        indices.set(key, index);
      }
      return [{ set, to: index }];
    });
    states.push({ edges: numbered, isAccepting });
  }
  return withoutDeadEnds(states);
}

/** Texts that are in both. */
export function intersection(a: CharacterGraph, b: CharacterGraph): CharacterGraph {
  if (a === ANY_TEXT) return b;
  if (b === ANY_TEXT) return a;
  return graphFrom(
    [0, 0] as readonly [number, number],
    ([i, j]) => i * b.length + j,
    ([i, j]) => ({
      edges: a[i]!.edges.flatMap(one =>
        b[j]!.edges.map(other => ({ set: one.set.intersect(other.set), to: [one.to, other.to] as readonly [number, number] })),
      ),
      isAccepting: a[i]!.isAccepting && b[j]!.isAccepting,
    }),
  );
}

/** Texts of it that have at least and at most so many characters. */
export function ofLength(graph: CharacterGraph, least: number, most: number): CharacterGraph {
  const lengths = lengthsOf(graph);
  const isShortest = lengths.least >= least;
  const isLongest = lengths.most <= most;
  if (isShortest && isLongest) return graph;
  // Past it nothing depends on the count.
  const cap = isLongest ? least : most;
  return graphFrom(
    { state: 0, count: 0 },
    ({ state, count }) => state * (cap + 1) + count,
    ({ state, count }) => {
      const next = isLongest ? Math.min(count + 1, cap) : count + 1;
      return {
        edges: next > cap ? [] : graph[state]!.edges.map(({ set, to }) => ({ set, to: { state: to, count: next } })),
        isAccepting: graph[state]!.isAccepting && count >= least,
      };
    },
  );
}

/** All texts but these few. */
export function anyTextBut(names: readonly string[]): CharacterGraph {
  if (names.length === 0) return ANY_TEXT;
  const root: NameTree = { id: 0, children: new Map(), isName: false };
  let count = 1;
  for (const name of names) {
    let node = root;
    for (const character of name) {
      let next = node.children.get(character);
      if (next === undefined) {
        next = { id: count++, children: new Map(), isName: false };
        node.children.set(character, next);
      }
      node = next;
    }
    node.isName = true;
  }
  return graphFrom<NameTree | 'other'>(
    root,
    state => (state === 'other' ? -1 : state.id),
    state => {
      if (state === 'other') return { edges: [{ set: CodePointSet.all, to: state }], isAccepting: true };
      const onward = Array.from(state.children, ([character, to]) => ({ set: CodePointSet.from(character), to }));
      const others = CodePointSet.from([...state.children.keys()].join('')).complement;
      return { edges: [...onward, { set: others, to: 'other' }], isAccepting: !state.isName };
    },
  );
}

interface NameTree {
  id: number;
  children: Map<string, NameTree>;
  isName: boolean;
}

export function isEmptyGraph(graph: CharacterGraph): boolean {
  return graph.length === 0;
}

export function accepts(graph: CharacterGraph, text: string): boolean {
  let reached = new Set(graph.length === 0 ? [] : [0]);
  for (const character of text) {
    const next = new Set<number>();
    for (const index of reached) {
      for (const { set, to } of graph[index]!.edges) if (set.has(character.codePointAt(0)!)) next.add(to);
    }
    reached = next;
  }
  return [...reached].some(index => graph[index]!.isAccepting);
}

/** As part of a grammar; `spell` writes one character of a set. */
export function graphNode(graph: CharacterGraph, spell: (set: CodePointSet) => GrammarNode): GraphNode {
  const spelled = new Map<string, GrammarNode>();
  const nodeOf = (set: CodePointSet): GrammarNode => {
    const key = set.ranges.join();
    let node = spelled.get(key);
    if (node === undefined) {
      node = spell(set);
      // Large sets take many states of bytes.
      if (set.ranges.some(([, last]) => last > 0x7f)) node = shared(node);
      spelled.set(key, node);
    }
    return node;
  };
  return {
    kind: 'graph',
    states: graph.map(({ edges, isAccepting }) => ({ edges: edges.map(({ set, to }) => ({ node: nodeOf(set), to })), isAccepting })),
  };
}

/** Characters of the shortest and of the longest text. */
function lengthsOf(graph: CharacterGraph): { least: number; most: number } {
  if (graph.length === 0) return { least: 0, most: 0 };
  const distance = new Map([[0, 0]]);
  let least = Number.POSITIVE_INFINITY;
  const queue = [0];
  for (let at = 0; at < queue.length; at++) {
    const index = queue[at]!;
    if (graph[index]!.isAccepting) least = Math.min(least, distance.get(index)!);
    for (const { to } of graph[index]!.edges) {
      if (distance.has(to)) continue;
      distance.set(to, distance.get(index)! + 1);
      queue.push(to);
    }
  }
  return { least, most: longest(graph) };
}

/** Infinity where states go round: all are on a way to an end. */
function longest(graph: CharacterGraph): number {
  const incoming = new Int32Array(graph.length);
  for (const { edges } of graph) for (const { to } of edges) incoming[to]!++;
  const lengths = new Int32Array(graph.length);
  const ready = [...incoming.keys()].filter(index => incoming[index] === 0);
  let done = 0;
  let most = 0;
  for (;;) {
    const index = ready.pop();
    if (index === undefined) return done === graph.length ? most : Number.POSITIVE_INFINITY;
    done++;
    most = Math.max(most, lengths[index]!);
    for (const { to } of graph[index]!.edges) {
      lengths[to] = Math.max(lengths[to]!, lengths[index]! + 1);
      if (--incoming[to]! === 0) ready.push(to);
    }
  }
}

/** Drops states from which no accepting one is reached. No states where none is left. */
function withoutDeadEnds(states: readonly CharacterState[]): CharacterGraph {
  const before: number[][] = states.map(() => []);
  for (const [index, { edges }] of states.entries()) for (const { to } of edges) before[to]!.push(index);
  const open = [...states.keys()].filter(index => states[index]!.isAccepting);
  const isKept = new Set(open);
  for (;;) {
    const index = open.pop();
    if (index === undefined) break;
    for (const from of before[index]!) {
      if (isKept.has(from)) continue;
      isKept.add(from);
      open.push(from);
    }
  }
  if (!isKept.has(0)) return [];
  const kept = [...states.keys()].filter(index => isKept.has(index));
  const numbers = new Map(kept.map((index, number) => [index, number]));
  return kept.map(index => ({
    edges: states[index]!.edges.flatMap(({ set, to }) => (numbers.has(to) ? [{ set, to: numbers.get(to)! }] : [])),
    isAccepting: states[index]!.isAccepting,
  }));
}
