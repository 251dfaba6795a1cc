/** TalkGraph: free text that may lead to a call: from where the call begins, it is held to its form. */
import { character, type GrammarNode, type GraphNode, sequence, text } from '../grammar.ts';
import { CodePointSet } from '../text/code-point-set.ts';

const ANY = CodePointSet.of([0, 0x10ffff]);
const SPACES = CodePointSet.from(' \t\n\r');

interface Edge {
  node: GrammarNode;
  to: number;
}

export interface CallInTalk {
  /** A text whose first character comes once in it, or a control token. */
  opener: string | GrammarNode;
  /** What stands behind the opener. */
  written: GrammarNode;
  /** Text and calls may follow. */
  isRepeated: boolean;
  /** Text without an opener is no whole answer. */
  isRequired?: boolean;
}

/** Any text in which behind each opener a call stands. */
export function talkUntil({ opener, written, isRepeated, isRequired = false }: CallInTalk): GraphNode {
  const beginning = typeof opener === 'string' ? opener : '';
  // State n: the text ends with the opener's first n characters. The last one: a call was made, and nothing may follow.
  const end = Math.max(1, beginning.length);
  const afterCall = isRepeated ? 0 : end;
  const states: { edges: Edge[]; isAccepting: boolean }[] = [];
  if (typeof opener !== 'string') {
    states.push({
      edges: [
        { node: character(ANY), to: 0 },
        { node: sequence(opener, written), to: afterCall },
      ],
      isAccepting: !isRequired,
    });
  }
  for (let n = 0; n < beginning.length; n++) {
    const [first, next] = [beginning[0]!, beginning[n]!];
    const edges: Edge[] = [{ node: character(ANY.minus(CodePointSet.from(first + next))), to: 0 }];
    if (n + 1 < beginning.length) edges.push({ node: text(next), to: n + 1 });
    else edges.push({ node: sequence(text(next), written), to: afterCall });
    if (n > 0) edges.push({ node: text(first), to: 1 });
    states.push({ edges, isAccepting: !isRequired });
  }
  states.push({ edges: [], isAccepting: true });
  return { kind: 'graph', states };
}

/** Any text of which the first character that is no space is another one; `calls` may come in it or behind it. */
export function talkWithout(first: string, calls: GrammarNode | undefined): GraphNode {
  const edges: Edge[] = calls === undefined ? [] : [{ node: calls, to: 2 }];
  return {
    kind: 'graph',
    states: [
      {
        edges: [
          { node: character(SPACES), to: 0 },
          { node: character(ANY.minus(SPACES).minus(CodePointSet.from(first))), to: 1 },
          ...edges,
        ],
        isAccepting: true,
      },
      { edges: [{ node: character(ANY), to: 1 }, ...edges], isAccepting: true },
      { edges: [], isAccepting: true },
    ],
  };
}
