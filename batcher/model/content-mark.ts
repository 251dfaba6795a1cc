/**
 * ContentMark: how text of a client passes through a chat template without ever turning into the model's control tokens.
 *
 * Before rendering, `guard` breaks each spelling of a control token in the text by a mark; a spelling that could come about only
 * together with what the template puts beside the text is broken at that end. After the rendered prompt has been cut at the
 * control tokens that are whole, `unguard` takes the marks out of what lies between, which is then encoded as plain text.
 *
 * A mark is two noncharacters, U+FDD0 U+FDD2; a U+FDD0 of the client's own becomes U+FDD0 U+FDD1. So unguard(guard(text)) = text
 * for every text.
 */
const LEAD = '\uFDD0';
const OWN = '\uFDD1';
const BREAK = '\uFDD2';
const MARK = LEAD + BREAK;

export class ContentMark {
  readonly #literals: RegExp | undefined;
  readonly #heads: ReadonlySet<string>;
  readonly #tails: ReadonlySet<string>;
  readonly #longest: number;

  /** The spellings that must not survive. */
  constructor(literals: readonly string[]) {
    this.#literals = alternation(literals);
    const cuts = literals.flatMap(literal =>
      Array.from({ length: literal.length - 1 }, (_, i) => [literal.slice(0, i + 1), literal.slice(i + 1)] as const),
    );
    this.#heads = new Set(cuts.map(([head]) => head));
    this.#tails = new Set(cuts.map(([, tail]) => tail));
    this.#longest = literals.reduce((length, literal) => Math.max(length, literal.length), 0);
  }

  guard(text: string): string {
    if (text === '') return text;
    let guarded = text.includes(LEAD) ? text.replaceAll(LEAD, LEAD + OWN) : text;
    if (this.#literals !== undefined) guarded = guarded.replace(this.#literals, breakInside);
    // Inside of surrounding white space, which templates like to trim away.
    const body = guarded.trim();
    const start = guarded.indexOf(body);
    const before = this.#startsWithTail(text) || this.#startsWithTail(body) ? MARK : '';
    const after = this.#endsWithHead(text) || this.#endsWithHead(body) ? MARK : '';
    return guarded.slice(0, start) + before + body + after + guarded.slice(start + body.length);
  }

  #startsWithTail(text: string): boolean {
    for (let length = Math.min(this.#longest, text.length); length > 0; length--) if (this.#tails.has(text.slice(0, length))) return true;
    return false;
  }

  #endsWithHead(text: string): boolean {
    for (let length = Math.min(this.#longest, text.length); length > 0; length--) if (this.#heads.has(text.slice(-length))) return true;
    return false;
  }
}

export function unguard(text: string): string {
  if (!text.includes(LEAD)) return text;
  return text.replace(/\uFDD0([\uFDD1\uFDD2])/g, (_, kind: string) => (kind === OWN ? LEAD : ''));
}

/** After the first character, whole: a spelling may start with one outside the basic plane. */
function breakInside(literal: string): string {
  const first = String.fromCodePoint(literal.codePointAt(0)!);
  return first + MARK + literal.slice(first.length);
}

/** Matches any of the texts, the longest where several start at one place; undefined for none. */
export function alternation(texts: readonly string[]): RegExp | undefined {
  const longestFirst = texts.filter(text => text !== '').toSorted((a, b) => b.length - a.length);
  if (longestFirst.length === 0) return undefined;
  return new RegExp(longestFirst.map(text => text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&')).join('|'), 'gu');
}
