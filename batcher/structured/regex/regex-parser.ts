/**
 * RegexParser: an ECMAScript regular expression as a tree. What no grammar can follow (look-around, back references, word boundaries) is refused by
 * name. Escapes that mean nothing stand for the character, as without the `u` flag; a dot is any character but line ends.
 */
import { GrammarError } from '../grammar.ts';
import { CodePointSet } from '../text/code-point-set.ts';
import { ClassParser, type PatternReader } from './regex-class.ts';

export type RegexNode =
  | { kind: 'set'; set: CodePointSet }
  | { kind: 'sequence'; parts: readonly RegexNode[] }
  | { kind: 'choice'; parts: readonly RegexNode[] }
  | { kind: 'repeat'; part: RegexNode; least: number; most: number }
  /** The beginning or the end of the text is here. */
  | { kind: 'anchor'; at: 'start' | 'end' };

const MAX_LENGTH = 4_096;
const MAX_DEPTH = 64;
const DOT = CodePointSet.from('\n\r\u2028\u2029').complement;
const QUANTIFIER = /^(?:([*+?])|\{(\d+)(?:(,)(\d*))?\})\??/;

/** Throws GrammarError that tells what is wrong and at which character. */
export function parseRegex(pattern: string): RegexNode {
  if (pattern.length > MAX_LENGTH) throw new GrammarError(`the pattern is longer than ${MAX_LENGTH} characters`);
  return new RegexParser(pattern).parse();
}

class RegexParser implements PatternReader {
  readonly pattern: string;
  at = 0;
  #depth = 0;

  constructor(pattern: string) {
    this.pattern = pattern;
  }

  parse(): RegexNode {
    const node = this.#choice();
    if (this.at < this.pattern.length) this.fail('there is a closing parenthesis too many');
    return node;
  }

  fail(message: string): never {
    throw new GrammarError(
      `the pattern cannot be followed: ${message} (at character ${this.at} of ${JSON.stringify(shortened(this.pattern))})`,
    );
  }

  /** The next code point, taken. */
  take(): string {
    const codePoint = this.pattern.codePointAt(this.at);
    if (codePoint === undefined) this.fail('it ends too early');
    const character = String.fromCodePoint(codePoint);
    this.at += character.length;
    return character;
  }

  takeIf(text: string): boolean {
    if (!this.pattern.startsWith(text, this.at)) return false;
    this.at += text.length;
    return true;
  }

  takeMatch(expression: RegExp): RegExpExecArray | null {
    const match = expression.exec(this.pattern.slice(this.at, this.at + 64));
    if (match !== null) this.at += match[0].length;
    return match;
  }

  #choice(): RegexNode {
    if (++this.#depth > MAX_DEPTH) this.fail(`groups are nested deeper than ${MAX_DEPTH}`);
    const parts = [this.#sequence()];
    while (this.takeIf('|')) parts.push(this.#sequence());
    this.#depth--;
    return parts.length === 1 ? parts[0]! : { kind: 'choice', parts };
  }

  #sequence(): RegexNode {
    const parts: RegexNode[] = [];
    while (this.at < this.pattern.length && this.pattern[this.at] !== '|' && this.pattern[this.at] !== ')') parts.push(this.#term());
    return parts.length === 1 ? parts[0]! : { kind: 'sequence', parts };
  }

  #term(): RegexNode {
    const atom = this.#atom();
    const start = this.at;
    const match = this.takeMatch(QUANTIFIER);
    if (match === null) return atom;
    if (atom.kind === 'anchor') this.fail('an anchor cannot be repeated');
    const [, sign, least, comma, most] = match;
    const range = sign === undefined ? rangeOf(Number(least), comma, most) : SIGNS[sign as keyof typeof SIGNS];
    if (range.least > range.most) {
      this.at = start;
      this.fail('a repetition has a least count above its most');
    }
    return { kind: 'repeat', part: atom, ...range };
  }

  #atom(): RegexNode {
    if (this.takeIf('(')) return this.#group();
    if (this.takeIf('[')) return { kind: 'set', set: new ClassParser(this).parse() };
    if (this.takeIf('^')) return { kind: 'anchor', at: 'start' };
    if (this.takeIf('$')) return { kind: 'anchor', at: 'end' };
    if (this.takeIf('.')) return { kind: 'set', set: DOT };
    if (this.takeIf('\\')) return this.#escape();
    if (/^[*+?]$/.test(this.pattern[this.at] ?? '') || QUANTIFIER.test(this.pattern.slice(this.at, this.at + 64))) {
      this.fail('there is nothing to repeat');
    }
    return { kind: 'set', set: CodePointSet.from(this.take()) };
  }

  #group(): RegexNode {
    if (this.takeIf('?')) {
      const isNamed = this.takeMatch(/^<[\p{L}_$][\p{L}\p{N}_$]*>/u) !== null;
      if (!isNamed && !this.takeIf(':')) this.fail('look-around and inline flags are not supported');
    }
    const node = this.#choice();
    if (!this.takeIf(')')) this.fail('a group is not closed');
    return node;
  }

  #escape(): RegexNode {
    const next = this.pattern[this.at];
    if (next === 'b' || next === 'B') this.fail('word boundaries are not supported');
    if (next === 'k' || (next !== undefined && /[1-9]/.test(next))) this.fail('back references are not supported');
    return { kind: 'set', set: new ClassParser(this).escape() };
  }
}

const SIGNS = {
  '*': { least: 0, most: Number.POSITIVE_INFINITY },
  '+': { least: 1, most: Number.POSITIVE_INFINITY },
  '?': { least: 0, most: 1 },
} as const;

function rangeOf(least: number, comma: string | undefined, most: string | undefined): { least: number; most: number } {
  if (comma === undefined) return { least, most: least };
  return { least, most: most === undefined || most === '' ? Number.POSITIVE_INFINITY : Number(most) };
}

function shortened(pattern: string): string {
  return pattern.length > 80 ? `${pattern.slice(0, 80)}…` : pattern;
}
