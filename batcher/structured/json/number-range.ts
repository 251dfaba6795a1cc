/**
 * NumberRange: the numbers between two bounds as grammar, in plain decimal digits; of at most 15 digits together, so that a double tells them all
 * apart and what is written is within the bounds when it is read.
 */
import { choice, EMPTY, GrammarError, type GrammarNode, NEVER, oneOf, repeat, sequence, text } from '../grammar.ts';
import { MAX_DIGITS } from './json-text.ts';

export interface NumberBounds {
  least?: number | undefined;
  most?: number | undefined;
  /** The bound itself is not allowed. */
  isAboveLeast?: boolean;
  isBelowMost?: boolean;
}

/** A bound as digits: those before the point, and those behind without zeros at the end. */
interface Limit {
  whole: string;
  fraction: string;
  isIncluded: boolean;
}

const DIGIT = oneOf('0123456789');

/** `maxFraction` digits behind the point; 0 for integers. Throws GrammarError where only longer numbers fit. */
export function numberRange({ least, most, isAboveLeast, isBelowMost }: NumberBounds, maxFraction: number): GrammarNode {
  const low = least ?? Number.NEGATIVE_INFINITY;
  const high = most ?? Number.POSITIVE_INFINITY;
  if (low >= 10 ** MAX_DIGITS || high <= -(10 ** MAX_DIGITS)) {
    throw new GrammarError(`only numbers of more than ${MAX_DIGITS} digits fit, and such are not written`);
  }
  const parts: GrammarNode[] = [];
  if (low < 0) {
    // Minus zero is left to zero.
    const near = high < 0 ? { value: -high, isIncluded: isBelowMost !== true } : { value: 0, isIncluded: false };
    const far = { value: -low, isIncluded: isAboveLeast !== true };
    parts.push(sequence(text('-'), magnitudes(near, far, maxFraction)));
  }
  if (high >= 0) {
    const near = low < 0 ? { value: 0, isIncluded: true } : { value: low, isIncluded: isAboveLeast !== true };
    const far = { value: high, isIncluded: isBelowMost !== true };
    parts.push(magnitudes(near, far, maxFraction));
  }
  return parts.length === 0 ? NEVER : choice(...parts);
}

interface Bound {
  value: number;
  isIncluded: boolean;
}

/** Numbers of no sign: one part for each count of digits before the point, since those compare digit by digit. */
function magnitudes(near: Bound, far: Bound, maxFraction: number): GrammarNode {
  const low = limitOf(near, 'up');
  const high = far.value >= 10 ** MAX_DIGITS ? undefined : limitOf(far, 'down');
  const parts: GrammarNode[] = [];
  const longest = high?.whole.length ?? MAX_DIGITS;
  for (let length = low.whole.length; length <= longest; length++) {
    const walk = new DigitWalk({
      length,
      low: length === low.whole.length ? low : undefined,
      high: length === high?.whole.length ? high : undefined,
      maxFraction: Math.min(maxFraction, MAX_DIGITS - length),
    });
    parts.push(walk.node());
  }
  return choice(...parts);
}

/** Numbers with `length` digits before the point. A side is tight while the digits so far are the limit's own. */
class DigitWalk {
  readonly #of: { length: number; low: Limit | undefined; high: Limit | undefined; maxFraction: number };

  constructor(of: { length: number; low: Limit | undefined; high: Limit | undefined; maxFraction: number }) {
    this.#of = of;
  }

  node(): GrammarNode {
    return this.#from(0, { low: this.#of.low !== undefined, high: this.#of.high !== undefined });
  }

  /** `at` counts the digits before, on both sides of the point. */
  #from(at: number, tight: { low: boolean; high: boolean }): GrammarNode {
    const { length, maxFraction } = this.#of;
    if (!tight.low && !tight.high && at > 0) return this.#free(at);
    if (at < length) return this.#digits(at, tight);
    const parts: GrammarNode[] = [];
    if (this.#mayStop(at, tight)) parts.push(EMPTY);
    if (at < length + maxFraction) parts.push(at === length ? sequence(text('.'), this.#digits(at, tight)) : this.#digits(at, tight));
    return parts.length === 0 ? NEVER : choice(...parts);
  }

  #digits(at: number, tight: { low: boolean; high: boolean }): GrammarNode {
    const { length, low, high } = this.#of;
    const least = tight.low ? digitAt(low!, at, length) : at === 0 && length > 1 ? 1 : 0;
    const most = tight.high ? digitAt(high!, at, length) : 9;
    const parts: GrammarNode[] = [];
    const between: number[] = [];
    for (let digit = least; digit <= most; digit++) {
      const next = { low: tight.low && digit === least, high: tight.high && digit === most };
      if (next.low || next.high) parts.push(sequence(text(String(digit)), this.#from(at + 1, next)));
      else between.push(digit);
    }
    if (between.length > 0) parts.push(sequence(oneOf(between.join('')), this.#from(at + 1, { low: false, high: false })));
    return parts.length === 0 ? NEVER : choice(...parts);
  }

  #mayStop(at: number, tight: { low: boolean; high: boolean }): boolean {
    const { length, low, high } = this.#of;
    const written = at - length;
    const isLowReached = !tight.low || (written >= low!.fraction.length && low!.isIncluded);
    const isBelowHigh = !tight.high || written < high!.fraction.length || high!.isIncluded;
    return isLowReached && isBelowHigh;
  }

  /** Any digits from here on. */
  #free(at: number): GrammarNode {
    const { length, maxFraction } = this.#of;
    const left = length + maxFraction - at;
    if (at > length) return repeat(DIGIT, 0, left);
    const fraction = maxFraction === 0 ? EMPTY : choice(EMPTY, sequence(text('.'), repeat(DIGIT, 1, maxFraction)));
    return sequence(repeat(DIGIT, length - at, length - at), fraction);
  }
}

function digitAt({ whole, fraction }: Limit, at: number, length: number): number {
  return Number((at < length ? whole[at] : fraction[at - length]) ?? 0);
}

/** Digits that are too many are cut: a limit from below is then just above what is left, one from above is what is left. */
function limitOf({ value, isIncluded }: Bound, cut: 'up' | 'down'): Limit {
  const [mantissa, exponent] = value.toExponential().split('e') as [string, string];
  const digits = mantissa.replace('.', '');
  const point = 1 + Number(exponent);
  const whole = point <= 0 ? '0' : digits.slice(0, point).padEnd(point, '0');
  const all = point <= 0 ? '0'.repeat(-point) + digits : digits.slice(point);
  const fraction = all.slice(0, MAX_DIGITS).replace(/0+$/, '');
  const isCut = /[1-9]/.test(all.slice(MAX_DIGITS));
  return { whole, fraction, isIncluded: isCut ? cut === 'down' : isIncluded };
}
