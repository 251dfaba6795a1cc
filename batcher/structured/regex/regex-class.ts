/** RegexClass: escapes and classes of a regular expression (`\d`, `[a-z_]`, `\p{L}`) as sets of characters. */
import { type CodePointRange, CodePointSet } from '../text/code-point-set.ts';

/** What is read of a pattern. */
export interface PatternReader {
  readonly pattern: string;
  at: number;
  take(): string;
  takeIf(text: string): boolean;
  takeMatch(expression: RegExp): RegExpExecArray | null;
  fail(message: string): never;
}

const DIGIT = CodePointSet.of([0x30, 0x39]);
const WORD = CodePointSet.of([0x30, 0x39], [0x41, 0x5a], [0x5f, 0x5f], [0x61, 0x7a]);
const SPACE = CodePointSet.from('\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff').union(CodePointSet.of([0x2000, 0x200a]));
const CLASSES: Readonly<Record<string, CodePointSet>> = {
  d: DIGIT,
  D: DIGIT.complement,
  w: WORD,
  W: WORD.complement,
  s: SPACE,
  S: SPACE.complement,
};
const CONTROLS: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t', v: '\v', f: '\f', '0': '\0' };
/** General categories of Unicode by which patterns ask; looking one up takes tens of milliseconds, once. */
const CATEGORY = /^(?:L|Lu|Ll|Lt|Lm|Lo|M|N|Nd|P|S|Z|Zs)$/;

export class ClassParser {
  readonly #reader: PatternReader;

  constructor(reader: PatternReader) {
    this.#reader = reader;
  }

  /** Behind the opening bracket; takes the closing one. */
  parse(): CodePointSet {
    const reader = this.#reader;
    const isNegated = reader.takeIf('^');
    let set = CodePointSet.empty;
    while (!reader.takeIf(']')) {
      const first = this.#member();
      const isRange = reader.pattern[reader.at] === '-' && reader.pattern[reader.at + 1] !== ']' && reader.at + 1 < reader.pattern.length;
      if (!isRange) {
        set = set.union(first);
        continue;
      }
      reader.takeIf('-');
      const last = this.#member();
      const range: CodePointRange = [single(first) ?? Number.NaN, single(last) ?? Number.NaN];
      // A class within a range makes the hyphen one character more.
      if (Number.isNaN(range[0]) || Number.isNaN(range[1])) set = set.union(first).union(last).union(CodePointSet.from('-'));
      else if (range[0] > range[1]) reader.fail('a range of characters is the wrong way round');
      else set = set.union(CodePointSet.of(range));
    }
    return isNegated ? set.complement : set;
  }

  /** Behind a backslash. */
  escape(): CodePointSet {
    const reader = this.#reader;
    const character = reader.take();
    const known = CLASSES[character];
    if (known !== undefined) return known;
    const control = CONTROLS[character];
    if (control !== undefined) {
      if (character === '0' && reader.takeMatch(/^\d/) !== null) reader.fail('octal escapes are not supported');
      return CodePointSet.from(control);
    }
    switch (character) {
      case 'x':
        return this.#hex(/^[0-9a-fA-F]{2}/);
      case 'u':
        return this.#unicode();
      case 'c': {
        const letter = reader.takeMatch(/^[A-Za-z]/);
        if (letter === null) return reader.fail('\\c wants a letter');
        return CodePointSet.from(String.fromCharCode(letter[0].charCodeAt(0) % 32));
      }
      case 'p':
      case 'P':
        return this.#property(character === 'P');
      default:
        if (/[A-Za-z0-9]/.test(character)) reader.fail(`\\${character} is not supported`);
        return CodePointSet.from(character);
    }
  }

  #member(): CodePointSet {
    const reader = this.#reader;
    if (!reader.takeIf('\\')) return CodePointSet.from(reader.take());
    // Within a class it is a backspace.
    return reader.takeIf('b') ? CodePointSet.from('\b') : this.escape();
  }

  #hex(expression: RegExp): CodePointSet {
    const digits = this.#reader.takeMatch(expression);
    if (digits === null) this.#reader.fail('an escape has too few hexadecimal digits');
    const codePoint = Number.parseInt(digits[1] ?? digits[0], 16);
    return CodePointSet.of([codePoint, codePoint]);
  }

  #unicode(): CodePointSet {
    const pair = this.#reader.takeMatch(/^([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})/);
    if (pair !== null) return CodePointSet.from(String.fromCharCode(Number.parseInt(pair[1]!, 16), Number.parseInt(pair[2]!, 16)));
    if (this.#reader.pattern[this.#reader.at] === '{') {
      const braced = this.#reader.takeMatch(/^\{(0*(?:10|[0-9a-fA-F])?[0-9a-fA-F]{1,4})\}/);
      if (braced === null) this.#reader.fail('\\u{…} wants a code point');
      const codePoint = Number.parseInt(braced[1]!, 16);
      return CodePointSet.of([codePoint, codePoint]);
    }
    return this.#hex(/^[0-9a-fA-F]{4}/);
  }

  #property(isNegated: boolean): CodePointSet {
    const name = this.#reader.takeMatch(/^\{(?:gc=|General_Category=)?(\w+)\}/)?.[1];
    if (name === undefined || !CATEGORY.test(name))
      this.#reader.fail('of \\p{…} only general categories such as \\p{L} and \\p{Nd} are supported');
    const set = categorySet(name);
    return isNegated ? set.complement : set;
  }
}

/** The code point of a set that has one only. */
function single(set: CodePointSet): number | undefined {
  const [range] = set.ranges;
  return set.ranges.length === 1 && range![0] === range![1] ? range![0] : undefined;
}

/** Planes without a character of these categories. */
const UNASSIGNED = { from: 0x40000, to: 0xe0000 };
const PRIVATE = 0xf0000;
const PIECE = 4_096;
const categories = new Map<string, CodePointSet>();

function categorySet(name: string): CodePointSet {
  let set = categories.get(name);
  if (set === undefined) {
    const runs = new RegExp(`\\p{${name}}+`, 'gu');
    const ranges: CodePointRange[] = [];
    // A piece at a time: one text of all characters would be large.
    for (let from = 0; from < PRIVATE; from += PIECE) {
      if (from >= UNASSIGNED.from && from < UNASSIGNED.to) continue;
      const piece = String.fromCodePoint(...Array.from({ length: PIECE }, (_, index) => from + index));
      for (const { 0: run } of piece.matchAll(runs)) {
        const characters = Array.from(run);
        ranges.push([characters[0]!.codePointAt(0)!, characters.at(-1)!.codePointAt(0)!]);
      }
    }
    set = CodePointSet.of(...ranges);
    categories.set(name, set);
  }
  return set;
}
