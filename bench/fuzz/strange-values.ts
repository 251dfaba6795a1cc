/** StrangeValues: numbers, texts and JSON that parsers and those behind them tend not to expect. */
import fc from 'fast-check';
import type { Dice } from './dice.ts';

/** As they are spelled in JSON, or nearly. */
const NUMBERS = [
  ...['0', '-0', '-1', '0.5', '1e400', '-1e400', '1e-400', '9007199254740993', '-9007199254740993', '2147483648', '4294967296'],
  ...['18446744073709551616', '1e308', '5e-324', '0.1e1', '1E+2', '00', '1.', '.5', '+1', '0x10', 'NaN', 'Infinity', '-Infinity'],
  `1${'0'.repeat(400)}`,
  `0.${'3'.repeat(2_000)}`,
];

const TEXTS = [
  ...['', ' ', '\0', '\u0007\u001b[31m', '\r\n', '\u2028\u2029', '\ufeff', '\ufffe\uffff', '\ud800', '\udfff\ud800', 'a\ud83d', '\u202e'],
  ...['<|im_start|>system\n', '<|im_end|>', '<|endoftext|>', '</s>', '{{ 7 * 7 }}', '{% for x in range(999999999) %}{% endfor %}', '{#'],
  ...['{{ messages }}', '{%- endif -%}', '__proto__', 'constructor', 'toString', '../../etc/passwd', '%00%ff', '$(id)', "' OR 1=1 --"],
  ...[
    'data: [DONE]\n\n',
    'id: 7\nevent: error\n',
    '\ud83d\udc69\u200d\ud83d\udc69\u200d\ud83d\udc67',
    'a\u0300'.repeat(300),
    '\u0e33'.repeat(500),
  ],
];

export function strangeNumber(dice: Dice): string {
  return dice.pick(NUMBERS);
}

/** Now and then very long; `longest` in UTF-16 units. */
export function strangeText(dice: Dice, longest = 100_000): string {
  const kind = dice.below(10);
  if (kind < 4) return dice.pick(TEXTS);
  if (kind < 6) return dice.value(fc.string({ unit: 'binary', maxLength: 200 }));
  if (kind < 7) return anyUnits(dice, dice.between(1, 300));
  if (kind < 8) return dice.value(fc.string({ unit: 'grapheme', maxLength: 200 }));
  const piece = kind < 9 ? dice.pick(TEXTS) : anyUnits(dice, dice.between(1, 4));
  return piece.repeat(Math.ceil(dice.between(1, longest) / Math.max(1, piece.length))).slice(0, longest);
}

/** UTF-16 as it comes, halves of pairs included. */
function anyUnits(dice: Dice, count: number): string {
  return String.fromCharCode(...Array.from({ length: count }, () => dice.below(0x10000)));
}

/** Any value that JSON can hold. */
export function strangeValue(dice: Dice): unknown {
  switch (dice.below(9)) {
    case 0:
      return null;
    case 1:
      return dice.chance(0.5);
    case 2:
      return dice.pick([0, -0, -1, 0.5, 1e308, -1e308, 2 ** 53, 2 ** 31, 5e-324, 1e9]);
    case 3:
    case 4:
      return strangeText(dice);
    case 5:
      return dice.pick([[], {}, [[]], [null], { '': '' }, JSON.parse('{"__proto__":{"polluted":1}}')]);
    case 6:
      return nested(dice.between(1, 200), dice.chance(0.5));
    case 7:
      return Array.from({ length: dice.pick([2, 70, 3_000]) }, () => dice.pick<unknown>(['x', 1, null, {}]));
    default:
      return dice.value(fc.jsonValue());
  }
}

function nested(depth: number, inArrays: boolean): unknown {
  let value: unknown = 1;
  for (let i = 0; i < depth; i++) value = inArrays ? [value] : { a: value };
  return value;
}

/** The same JSON value with something in it replaced, added, taken away or doubled. */
export function distorted(value: unknown, dice: Dice): unknown {
  if (typeof value !== 'object' || value === null || dice.chance(0.15)) return strangeValue(dice);
  if (Array.isArray(value)) {
    const copy = [...value];
    const at = dice.below(copy.length + 1);
    if (at === copy.length || dice.chance(0.2))
      copy.splice(at, 0, dice.chance(0.5) && copy.length > 0 ? dice.pick(copy) : strangeValue(dice));
    else copy[at] = distorted(copy[at], dice);
    return copy;
  }
  const entries = Object.entries(value);
  const what = dice.below(10);
  if (entries.length === 0 || what === 0) return { ...value, [strangeText(dice, 300)]: strangeValue(dice) };
  const at = dice.below(entries.length);
  if (what === 1) entries.splice(at, 1);
  else entries[at] = [entries[at]![0], distorted(entries[at]![1], dice)];
  return Object.fromEntries(entries);
}

/** The same bytes with some of them flipped, cut, doubled or made up. */
export function damaged(bytes: Uint8Array, dice: Dice): Buffer {
  let result = Buffer.from(bytes);
  for (let times = dice.between(1, 4); times > 0; times--) {
    const at = dice.below(result.length + 1);
    switch (dice.below(6)) {
      case 0:
        if (at < result.length) result[at] = result[at]! ^ (1 << dice.below(8));
        break;
      case 1:
        result = Buffer.concat([result.subarray(0, at), dice.bytes(dice.between(1, 8)), result.subarray(at)]);
        break;
      case 2:
        result = result.subarray(0, at);
        break;
      case 3:
        result = Buffer.concat([result.subarray(0, at), result.subarray(at + dice.between(1, 16))]);
        break;
      case 4:
        result = Buffer.concat([result.subarray(0, at), result.subarray(at, at + 40), result.subarray(at)]);
        break;
      default:
        result = Buffer.concat([result.subarray(0, at), Buffer.from(dice.pick(BREAKERS)), result.subarray(at)]);
    }
  }
  return result;
}

const BREAKERS = [
  ...[[0xff], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0xe2, 0x82], [0xef, 0xbb, 0xbf], [0]],
  ...['{', '}', '[', ']', '"', '\\', ',', ':', '\\u', '\\ud800', '/*', '{"a":'].map(text => [...Buffer.from(text)]),
];
