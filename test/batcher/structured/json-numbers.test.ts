import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { fits, randomFrom, randomText, schemaTable } from './structures.ts';

const bound = fc.oneof(
  fc.integer({ min: -1200, max: 1200 }),
  fc.double({ min: -50, max: 50, noNaN: true }).map(value => Number(value.toFixed(3))),
  fc.constantFrom(0, -0, 1, 9, 10, 99, 100, 0.001, -0.001, 1e-9, 123456.75, 1e15, -1e15, 1e21),
);

describe('integers', () => {
  test('all between the bounds fit, and no others', () => {
    fc.assert(
      fc.property(fc.integer({ min: -250, max: 250 }), fc.nat(400), (minimum, span) => {
        const table = schemaTable({ type: 'integer', minimum, maximum: minimum + span });
        for (let value = minimum - 3; value <= minimum + span + 3; value++) {
          expect(fits(table, String(value)), String(value)).toBe(value >= minimum && value <= minimum + span);
        }
        for (const text of ['', '-', '00', '01', '-0', '+1', '1.0', '1e1']) expect(fits(table, text)).toBe(false);
      }),
      { numRuns: 25 },
    );
  });

  test('of exclusive bounds and one bound only', () => {
    const above = schemaTable({ type: 'integer', exclusiveMinimum: 99 });
    expect(['99', '100', '98', '123456', '-100'].filter(text => fits(above, text))).toEqual(['100', '123456']);
    const below = schemaTable({ type: 'integer', exclusiveMaximum: -5 });
    expect(['-5', '-6', '0', '-999'].filter(text => fits(below, text))).toEqual(['-6', '-999']);
    // Bounds that are no integers themselves.
    const odd = schemaTable({ type: 'integer', minimum: 0.5, maximum: 3.5 });
    expect(['0', '1', '3', '4'].filter(text => fits(odd, text))).toEqual(['1', '3']);
  });

  test('multiples, between bounds and without', () => {
    const table = schemaTable({ type: 'integer', multipleOf: 7 });
    for (let value = -150; value <= 150; value++) expect(fits(table, String(value)), String(value)).toBe(value % 7 === 0);
    const some = schemaTable({ type: 'integer', multipleOf: 25, minimum: 30, exclusiveMaximum: 125 });
    expect(['25', '50', '75', '100', '125'].filter(text => fits(some, text))).toEqual(['50', '75', '100']);
    const tens = schemaTable({ type: 'integer', multipleOf: 300 });
    expect(['0', '300', '600', '30', '-900', '650'].filter(text => fits(tens, text))).toEqual(['0', '300', '600', '-900']);
  });
});

describe('numbers', () => {
  test('what can be written is within the bounds', () => {
    fc.assert(
      fc.property(bound, bound, fc.boolean(), fc.boolean(), fc.nat(), (a, b, isAbove, isBelow, seed) => {
        const [low, high] = [Math.min(a, b), Math.max(a, b)];
        fc.pre(low < high && high - low > 1e-9 && low < 1e15 && high > -1e15);
        const table = schemaTable({
          type: 'number',
          [isAbove ? 'exclusiveMinimum' : 'minimum']: low,
          [isBelow ? 'exclusiveMaximum' : 'maximum']: high,
        });
        const random = randomFrom(seed);
        for (let i = 0; i < 20; i++) {
          const value = Number(randomText(table, random));
          expect(isAbove ? value > low : value >= low, `${value} from ${low}`).toBe(true);
          expect(isBelow ? value < high : value <= high, `${value} to ${high}`).toBe(true);
        }
      }),
    );
  });

  test('the bounds themselves fit where they are included', () => {
    const table = schemaTable({ type: 'number', minimum: -3.25, exclusiveMaximum: 1.5 });
    expect(['-3.25', '-3.250', '1.5', '1.50', '1.49', '-3.26', '0', '-0.5'].filter(text => fits(table, text))).toEqual([
      '-3.25',
      '-3.250',
      '1.49',
      '0',
      '-0.5',
    ]);
  });

  test('decimals of a step', () => {
    const table = schemaTable({ type: 'number', multipleOf: 0.01, minimum: 0, maximum: 2 });
    expect(['0.1', '0.12', '0.123', '2', '2.01'].filter(text => fits(table, text))).toEqual(['0.1', '0.12', '2']);
  });

  test.each([
    [{ multipleOf: 0.3 }, '0.3'],
    [{ multipleOf: 97 }, 'need'],
    [{ multipleOf: 0 }, 'above 0'],
    [{ multipleOf: 3, minimum: 0 }, 'only one of'],
    [{ multipleOf: 1, minimum: 0, maximum: 1e9 }, 'more than 4096'],
    [{ minimum: 1e15, maximum: 1e21 }, 'more than 15 digits'],
    [{ maximum: -1e15 }, 'more than 15 digits'],
    [{ minimum: 3, maximum: 2 }, 'no value fits'],
    [{ exclusiveMinimum: 2, maximum: 2 }, 'no value fits'],
  ])('%j is refused', (keywords, words) => {
    expect(() => schemaTable({ type: 'number', ...keywords })).toThrow(words);
  });
});
