/**
 * Grammar: what an answer may look like, as rules over texts; made from a JSON schema, a regular expression, a list of choices or EBNF, and turned
 * into an automaton by AutomatonBuilder. Plain data.
 */
import { CodePointSet } from './text/code-point-set.ts';

export type GrammarNode =
  /** Nothing at all fits. */
  | { kind: 'never' }
  /** These bytes. */
  | { kind: 'bytes'; bytes: Uint8Array }
  /** One character of the set. */
  | { kind: 'character'; set: CodePointSet }
  /** One control token, which has no text. */
  | { kind: 'control'; tokenId: number }
  | { kind: 'sequence'; parts: readonly GrammarNode[] }
  | { kind: 'choice'; parts: readonly GrammarNode[] }
  /** `most` may be Infinity. */
  | { kind: 'repeat'; part: GrammarNode; least: number; most: number }
  | ListNode
  | GraphNode
  /** One part for all places that name this very node; for parts that are large or used often. */
  | { kind: 'shared'; part: GrammarNode }
  | { kind: 'rule'; name: string };

/** Items in their order, separated; those that are not required may be left out; then any number of `rest`. */
export interface ListNode {
  kind: 'list';
  items: readonly { node: GrammarNode; isRequired: boolean }[];
  rest?: GrammarNode | undefined;
  separator: GrammarNode;
  /** Of items and rest together. */
  least?: number;
  most?: number;
}

/** States and what leads from one to another; state 0 is the first. */
export interface GraphNode {
  kind: 'graph';
  states: readonly { edges: readonly { node: GrammarNode; to: number }[]; isAccepting: boolean }[];
}

export interface Grammar {
  root: GrammarNode;
  rules: ReadonlyMap<string, GrammarNode>;
}

/**
 * A grammar that cannot be followed; `where` is the place in what the client sent, as a JSON pointer (`#/properties/x`) or a line; `param` the field
 * that has it, where the structure has several.
 */
export class GrammarError extends Error {
  readonly where: string | undefined;
  readonly param: string | undefined;

  constructor(message: string, where?: string, param?: string) {
    super(message);
    this.name = 'GrammarError';
    this.where = where;
    this.param = param;
  }
}

const ENCODER = new TextEncoder();

export const NEVER: GrammarNode = { kind: 'never' };
export const EMPTY: GrammarNode = { kind: 'sequence', parts: [] };

export function text(value: string): GrammarNode {
  return value === '' ? EMPTY : { kind: 'bytes', bytes: ENCODER.encode(value) };
}

/** What a model writes as a control token, where its number is known, and else spelled out. */
export function mark(spelling: string, tokenId: number | undefined): GrammarNode {
  return tokenId === undefined ? text(spelling) : { kind: 'control', tokenId };
}

export function character(set: CodePointSet): GrammarNode {
  return set.isEmpty ? NEVER : { kind: 'character', set };
}

/** One of the characters of a text. */
export function oneOf(characters: string): GrammarNode {
  return character(CodePointSet.from(characters));
}

export function sequence(...parts: readonly GrammarNode[]): GrammarNode {
  return parts.length === 1 ? parts[0]! : { kind: 'sequence', parts };
}

export function choice(...parts: readonly GrammarNode[]): GrammarNode {
  return parts.length === 1 ? parts[0]! : { kind: 'choice', parts };
}

export function optional(part: GrammarNode): GrammarNode {
  return { kind: 'choice', parts: [part, EMPTY] };
}

export function repeat(part: GrammarNode, least = 0, most = Number.POSITIVE_INFINITY): GrammarNode {
  if (least === 1 && most === 1) return part;
  return { kind: 'repeat', part, least, most };
}

export function shared(part: GrammarNode): GrammarNode {
  return part.kind === 'shared' || part.kind === 'rule' ? part : { kind: 'shared', part };
}

export function rule(name: string): GrammarNode {
  return { kind: 'rule', name };
}

/** One of many texts; those that begin alike share their beginning, so that a long list costs no more than its length. */
export function oneOfTexts(values: readonly string[]): GrammarNode {
  const encoded = [...new Set(values)].map(value => ENCODER.encode(value));
  return trieNode(encoded, 0);
}

/** Iterative along common runs; deep only where the texts branch. */
function trieNode(texts: readonly Uint8Array[], at: number): GrammarNode {
  if (texts.length === 0) return NEVER;
  if (texts.length === 1) return at === texts[0]!.length ? EMPTY : { kind: 'bytes', bytes: texts[0]!.subarray(at) };
  const groups = new Map<number, Uint8Array[]>();
  for (const one of texts) {
    const key = one[at] ?? -1;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [one]);
    else group.push(one);
  }
  const parts = Array.from(groups, ([key, group]) => {
    if (key === -1) return EMPTY;
    let end = at + 1;
    while (group.every(one => one.length > end && one[end] === group[0]![end])) end++;
    return sequence({ kind: 'bytes', bytes: group[0]!.subarray(at, end) }, trieNode(group, end));
  });
  return choice(...parts);
}

/** Surely nothing fits. Rules are not looked into, so some such grammars are found later only. */
export function isNever(node: GrammarNode): boolean {
  switch (node.kind) {
    case 'never':
      return true;
    case 'sequence':
      return node.parts.some(isNever);
    case 'choice':
      return node.parts.every(isNever);
    case 'repeat':
      return node.least > node.most || (node.least > 0 && isNever(node.part));
    case 'graph':
      return node.states.length === 0;
    case 'list':
      return node.items.some(item => item.isRequired && isNever(item.node)) || (node.least ?? 0) > (node.most ?? Number.POSITIVE_INFINITY);
    case 'shared':
      return isNever(node.part);
    case 'bytes':
    case 'character':
    case 'control':
    case 'rule':
      return false;
  }
}
