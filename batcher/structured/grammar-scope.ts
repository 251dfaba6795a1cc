/** GrammarScope: grammars side by side in one, each with its own rules. */
import type { Grammar, GrammarNode } from './grammar.ts';

export class GrammarScope {
  readonly rules = new Map<string, GrammarNode>();

  /** The root of a grammar, whose rules bear the name in front of theirs from here on. */
  add(name: string, grammar: Grammar): GrammarNode {
    // A node that stands at several places is one node there, too.
    const moved = new Map<GrammarNode, GrammarNode>();
    const move = (node: GrammarNode): GrammarNode => {
      let result = moved.get(node);
      if (result === undefined) {
        result = this.#moved(node, name, move);
        moved.set(node, result);
      }
      return result;
    };
    for (const [rule, node] of grammar.rules) this.rules.set(`${name} ${rule}`, move(node));
    return move(grammar.root);
  }

  #moved(node: GrammarNode, name: string, move: (node: GrammarNode) => GrammarNode): GrammarNode {
    switch (node.kind) {
      case 'never':
      case 'bytes':
      case 'character':
      case 'control':
        return node;
      case 'rule':
        return { kind: 'rule', name: `${name} ${node.name}` };
      case 'sequence':
      case 'choice':
        return { ...node, parts: node.parts.map(move) };
      case 'repeat':
      case 'shared':
        return { ...node, part: move(node.part) };
      case 'list': {
        const { items, rest, separator } = node;
        return {
          ...node,
          items: items.map(item => ({ ...item, node: move(item.node) })),
          rest: rest && move(rest),
          separator: move(separator),
        };
      }
      case 'graph':
        return {
          ...node,
          states: node.states.map(state => ({ ...state, edges: state.edges.map(edge => ({ ...edge, node: move(edge.node) })) })),
        };
    }
  }
}
