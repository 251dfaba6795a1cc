/**
 * JsonText: the parts of JSON as grammar: strings, white space, constants, any value. White space is bounded, so that nothing but content can fill
 * an answer, and laid out as people and programs do: none, a space, or a line break and some indentation.
 */
import { character, choice, EMPTY, type GrammarNode, oneOf, repeat, rule, sequence, shared, text } from '../grammar.ts';
import { CodePointSet } from '../text/code-point-set.ts';

const MAX_INDENT = 24;
/** More would lose digits in a double. */
export const MAX_DIGITS = 15;

/** Between the tokens of JSON. */
export const GAP = shared(
  choice(EMPTY, text(' '), sequence(text('\n'), choice(repeat(text(' '), 0, MAX_INDENT), repeat(text('\t'), 0, 8)))),
);
const AFTER_COLON = choice(EMPTY, text(' '));
export const COMMA = sequence(text(','), GAP);

/** Stand for themselves in a string of JSON. */
const UNESCAPED = CodePointSet.of([0x20, 0x10ffff]).minus(CodePointSet.from('"\\'));
const SHORT_ESCAPES: Readonly<Record<string, string>> = {
  '"': '"',
  '\\': '\\',
  '\b': 'b',
  '\f': 'f',
  '\n': 'n',
  '\r': 'r',
  '\t': 't',
};
const DIGIT = oneOf('0123456789');
const HEX = oneOf('0123456789abcdefABCDEF');

/** \uXXXX: a character, or a pair for one beyond the basic plane; never half a pair. */
const UNICODE_ESCAPE = choice(
  sequence(oneOf('0123456789abcefABCEF'), HEX, HEX, HEX),
  sequence(oneOf('dD'), oneOf('01234567'), HEX, HEX),
  sequence(oneOf('dD'), oneOf('89abAB'), HEX, HEX, text('\\u'), oneOf('dD'), oneOf('cdefCDEF'), HEX, HEX),
);

/** One character of a string, in any way of writing it. */
export const ANY_CHARACTER: GrammarNode = choice(
  character(UNESCAPED),
  sequence(text('\\'), choice(oneOf('"\\/bfnrt'), sequence(text('u'), UNICODE_ESCAPE))),
);

export const ANY_STRING: GrammarNode = shared(quoted(repeat(ANY_CHARACTER)));

export function quoted(content: GrammarNode): GrammarNode {
  return sequence(text('"'), content, text('"'));
}

/** One character of the set within a string; what must be escaped is, in the shortest way. */
export function spelledInString(set: CodePointSet): GrammarNode {
  const escapes: GrammarNode[] = [];
  const escaped = set.minus(UNESCAPED);
  for (const [first, last] of escaped.ranges) {
    for (let codePoint = first; codePoint <= last; codePoint++) {
      const short = SHORT_ESCAPES[String.fromCharCode(codePoint)];
      escapes.push(text(`\\${short ?? `u${codePoint.toString(16).padStart(4, '0')}`}`));
    }
  }
  return choice(character(set.intersect(UNESCAPED)), ...escapes);
}

/** A key and a value. */
export function pair(key: GrammarNode, value: GrammarNode): GrammarNode {
  return sequence(key, text(':'), AFTER_COLON, value);
}

/** In brackets, apart from them by bounded white space. */
export function enclosed(open: '{' | '[', content: GrammarNode): GrammarNode {
  return sequence(text(open), GAP, content, GAP, text(open === '{' ? '}' : ']'));
}

/** One value, spelled as JSON.stringify does it but for white space. */
export function constant(value: unknown): GrammarNode {
  if (Array.isArray(value)) {
    if (value.length === 0) return enclosed('[', EMPTY);
    return enclosed('[', sequence(...value.flatMap((element, index) => (index === 0 ? [constant(element)] : [COMMA, constant(element)]))));
  }
  if (typeof value === 'object' && value !== null) {
    const pairs = Object.entries(value).map(([key, inner]) => pair(text(JSON.stringify(key)), constant(inner)));
    return enclosed('{', sequence(...pairs.flatMap((one, index) => (index === 0 ? [one] : [COMMA, one]))));
  }
  return text(JSON.stringify(value));
}

const WHOLE = choice(text('0'), sequence(oneOf('123456789'), repeat(DIGIT, 0, MAX_DIGITS - 1)));
const SIGN = choice(EMPTY, text('-'));

export const ANY_INTEGER: GrammarNode = choice(text('0'), sequence(SIGN, oneOf('123456789'), repeat(DIGIT, 0, MAX_DIGITS - 1)));
export const ANY_NUMBER: GrammarNode = sequence(
  SIGN,
  WHOLE,
  choice(EMPTY, sequence(text('.'), repeat(DIGIT, 1, MAX_DIGITS))),
  choice(EMPTY, sequence(oneOf('eE'), choice(EMPTY, oneOf('+-')), repeat(DIGIT, 1, 2))),
);
export const BOOLEAN: GrammarNode = choice(text('true'), text('false'));
export const NULL: GrammarNode = text('null');

/** Any value, any object, any array: rules, since they nest without end. */
export const ANY_VALUE: GrammarNode = rule('any value');
export const ANY_OBJECT: GrammarNode = rule('any object');
export const ANY_ARRAY: GrammarNode = rule('any array');

/** A list of elements in their brackets. */
const anyList = (open: '{' | '[', element: GrammarNode): GrammarNode =>
  enclosed(open, { kind: 'list', items: [], rest: element, separator: COMMA });

export const JSON_RULES: ReadonlyMap<string, GrammarNode> = new Map([
  ['any value', choice(ANY_STRING, ANY_NUMBER, BOOLEAN, NULL, ANY_OBJECT, ANY_ARRAY)],
  ['any object', anyList('{', pair(ANY_STRING, ANY_VALUE))],
  ['any array', anyList('[', ANY_VALUE)],
]);
