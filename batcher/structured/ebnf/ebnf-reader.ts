/** EbnfReader: the text of an EBNF grammar, read a token at a time: names, literals, classes, signs; comments and white space are passed over. */
import { GrammarError } from '../grammar.ts';
import { type CodePointRange, CodePointSet } from '../text/code-point-set.ts';

const NAME = /[A-Za-z_][A-Za-z0-9_.-]*/y;
const BLANK = /(?:\s|#[^\n]*)*/y;
const COUNT = /\{\s*(\d{1,6})\s*(?:(,)\s*(\d{1,6})?\s*)?\}/y;
const ESCAPES: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t', f: '\f', v: '\v', b: '\b', '0': '\0' };

export class EbnfReader {
  readonly #source: string;
  #at = 0;

  constructor(source: string) {
    this.#source = source;
    this.#skipBlank();
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#source.length;
  }

  fail(message: string): never {
    const before = this.#source.slice(0, this.#at);
    const line = before.split('\n').length;
    throw new GrammarError(message, `line ${line}, column ${this.#at - before.lastIndexOf('\n')}`);
  }

  takeIf(sign: string): boolean {
    if (!this.#source.startsWith(sign, this.#at)) return false;
    this.#at += sign.length;
    this.#skipBlank();
    return true;
  }

  /** A name; with `::=` behind it only if that is asked for. */
  takeName(as: 'definition' | 'reference'): string | undefined {
    const before = this.#at;
    const name = this.#match(NAME)?.[0];
    if (name === undefined) return undefined;
    this.#skipBlank();
    const isDefinition = this.#source.startsWith('::=', this.#at);
    if (isDefinition === (as === 'definition')) {
      if (isDefinition) this.takeIf('::=');
      return name;
    }
    this.#at = before;
    return undefined;
  }

  /** What stands between quotes. */
  takeLiteral(): string | undefined {
    const quote = this.#source[this.#at];
    if (quote !== '"' && quote !== "'") return undefined;
    this.#at += 1;
    let text = '';
    for (;;) {
      const character = this.#character('the literal is not closed');
      if (character === quote) break;
      text += character === '\\' ? this.#escape() : character;
    }
    this.#skipBlank();
    return text;
  }

  /** `[a-z]`, `[^"\\]`, or a dot for any character. */
  takeClass(): CodePointSet | undefined {
    if (this.takeIf('.')) return CodePointSet.all;
    if (this.#source[this.#at] !== '[') return undefined;
    this.#at += 1;
    const isNegated = this.#source[this.#at] === '^';
    if (isNegated) this.#at += 1;
    const ranges: CodePointRange[] = [];
    for (;;) {
      const first = this.#character('the class is not closed');
      if (first === ']') break;
      const from = first === '\\' ? this.#escape() : first;
      const isRange = this.#source[this.#at] === '-' && this.#source[this.#at + 1] !== ']';
      let to = from;
      if (isRange) {
        this.#at += 1;
        const last = this.#character('the class is not closed');
        to = last === '\\' ? this.#escape() : last;
      }
      if (from.codePointAt(0)! > to.codePointAt(0)!) this.fail('a range of characters is the wrong way round');
      ranges.push([from.codePointAt(0)!, to.codePointAt(0)!]);
    }
    this.#skipBlank();
    const set = CodePointSet.of(...ranges);
    return isNegated ? set.complement : set;
  }

  /** `{n}`, `{n,}`, `{n,m}`. */
  takeCount(): { least: number; most: number } | undefined {
    const match = this.#match(COUNT);
    if (match === undefined) return undefined;
    this.#skipBlank();
    const least = Number(match[1]);
    if (match[2] === undefined) return { least, most: least };
    return { least, most: match[3] === undefined ? Number.POSITIVE_INFINITY : Number(match[3]) };
  }

  #character(ifNone: string): string {
    const codePoint = this.#source.codePointAt(this.#at);
    if (codePoint === undefined) this.fail(ifNone);
    const character = String.fromCodePoint(codePoint);
    this.#at += character.length;
    return character;
  }

  #escape(): string {
    const character = this.#character('an escape is not complete');
    const length = { x: 2, u: 4, U: 8 }[character];
    if (length === undefined) return ESCAPES[character] ?? character;
    const digits = this.#source.slice(this.#at, this.#at + length);
    if (!new RegExp(`^[0-9a-fA-F]{${length}}$`).test(digits)) this.fail(`\\${character} wants ${length} hexadecimal digits`);
    this.#at += length;
    const codePoint = Number.parseInt(digits, 16);
    if (codePoint > 0x10ffff || (codePoint >= 0xd800 && codePoint <= 0xdfff)) this.fail(`\\${character}${digits} is no character`);
    return String.fromCodePoint(codePoint);
  }

  #skipBlank(): void {
    this.#match(BLANK);
  }

  #match(expression: RegExp): RegExpExecArray | undefined {
    expression.lastIndex = this.#at;
    const match = expression.exec(this.#source);
    if (match === null) return undefined;
    this.#at += match[0].length;
    return match;
  }
}
