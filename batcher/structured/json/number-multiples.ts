/** NumberMultiples: the multiples of a whole number as grammar: the digits are followed by their remainder. */
import { choice, EMPTY, GrammarError, type GrammarNode, type GraphNode, oneOfTexts, sequence, text } from '../grammar.ts';
import { type NumberBounds, numberRange } from './number-range.ts';

/** Digits of a multiple without bounds, at most. */
const DIGITS = 9;
/** Remainders that are followed; a factor of ten takes none. */
const MAX_REMAINDERS = 64;
/** Multiples between two bounds are listed. */
const MAX_LISTED = 4_096;

/** Throws GrammarError for a factor that cannot be held to. */
export function multiplesOf(factor: number, bounds: NumberBounds): GrammarNode {
  if (factor < 1) return fractions(factor, bounds);
  if (!Number.isSafeInteger(factor))
    throw new GrammarError(`multiples of ${factor} are not supported: only whole numbers and 0.1, 0.01 and so on are`);
  if (bounds.least === undefined && bounds.most === undefined) return unbounded(factor);
  if (bounds.least === undefined || bounds.most === undefined) {
    throw new GrammarError("'multipleOf' with only one of 'minimum' and 'maximum' is not supported");
  }
  const first = Math.ceil(bounds.least / factor) + (bounds.isAboveLeast === true && bounds.least % factor === 0 ? 1 : 0);
  const last = Math.floor(bounds.most / factor) - (bounds.isBelowMost === true && bounds.most % factor === 0 ? 1 : 0);
  if (last - first >= MAX_LISTED)
    throw new GrammarError(`more than ${MAX_LISTED} multiples of ${factor} lie between 'minimum' and 'maximum'`);
  // Adding 0 makes plain zero of minus zero.
  return oneOfTexts(Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => String((first + index) * factor + 0)));
}

function fractions(factor: number, bounds: NumberBounds): GrammarNode {
  const digits = Math.round(-Math.log10(factor));
  if (Number(`1e-${digits}`) !== factor || digits > 12) {
    throw new GrammarError(`multiples of ${factor} are not supported: only whole numbers and 0.1, 0.01 and so on are`);
  }
  return numberRange(bounds, digits);
}

function unbounded(factor: number): GrammarNode {
  let rest = factor;
  let zeros = '';
  while (rest % 10 === 0) {
    rest /= 10;
    zeros += '0';
  }
  if (rest > MAX_REMAINDERS) {
    throw new GrammarError(`multiples of ${factor} need 'minimum' and 'maximum' that at most ${MAX_LISTED} of them lie between`);
  }
  const sign = choice(EMPTY, text('-'));
  return choice(text('0'), sequence(sign, withoutZero(rest), text(zeros)));
}

/** States are (digits left, remainder); the first digit is not zero. */
function withoutZero(factor: number): GraphNode {
  const indexOf = (digitsLeft: number, remainder: number): number => 1 + digitsLeft * factor + remainder;
  const edgesFrom = (digitsLeft: number, remainder: number, least: number) =>
    digitsLeft === 0
      ? []
      : Array.from({ length: 10 - least }, (_, index) => {
          const digit = index + least;
          return { node: text(String(digit)), to: indexOf(digitsLeft - 1, (remainder * 10 + digit) % factor) };
        });
  const states = [{ edges: edgesFrom(DIGITS, 0, 1), isAccepting: false }];
  for (let digitsLeft = 0; digitsLeft < DIGITS; digitsLeft++) {
    for (let remainder = 0; remainder < factor; remainder++) {
      states.push({ edges: edgesFrom(digitsLeft, remainder, 0), isAccepting: remainder === 0 });
    }
  }
  return { kind: 'graph', states };
}
