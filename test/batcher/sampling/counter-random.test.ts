import { describe, expect, test } from 'vitest';
import { CounterRandom, philox } from '../../../batcher/sampling/counter-random.ts';

describe('philox', () => {
  // The known answers that Random123 publishes for philox4x32-10.
  test.each([
    { counter: [0, 0, 0, 0], key: [0, 0], answer: [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8] },
    {
      counter: [0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff],
      key: [0xffffffff, 0xffffffff],
      answer: [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd],
    },
    {
      counter: [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
      key: [0xa4093822, 0x299f31d0],
      answer: [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
    },
  ])('known answer of counter $counter', ({ counter, key, answer }) => {
    const words = Uint32Array.from(counter);
    philox(words, { low: key[0]!, high: key[1]! });
    expect([...words]).toEqual(answer);
  });
});

describe('CounterRandom', () => {
  test('the same position gives the same number, in any order', () => {
    const first = new CounterRandom(-42, 3);
    const forward = [0, 1, 2, 3].map(position => first.at(position));
    const second = new CounterRandom(-42, 3);
    expect([3, 2, 1, 0].map(position => second.at(position)).reverse()).toEqual(forward);
  });

  test('seeds that differ in any bit, positions and streams all give other numbers', () => {
    const seeds = [0, 1, -1, 2 ** 32, -(2 ** 32), Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER];
    const numbers = seeds.flatMap(seed =>
      [0, 1].flatMap(stream => [0, 1, 2 ** 32].map(position => new CounterRandom(seed, stream).at(position))),
    );
    expect(new Set(numbers).size).toBe(numbers.length);
  });

  test('is uniform: mean, variance and correlation of neighbours', () => {
    const random = new CounterRandom(7, 0);
    const numbers = Array.from({ length: 100_000 }, (_, position) => random.at(position));
    const mean = numbers.reduce((sum, x) => sum + x, 0) / numbers.length;
    const variance = numbers.reduce((sum, x) => sum + (x - 0.5) ** 2, 0) / numbers.length;
    const neighbours = numbers.slice(1).reduce((sum, x, i) => sum + (x - 0.5) * (numbers[i]! - 0.5), 0) / numbers.length;
    expect(Math.abs(mean - 0.5)).toBeLessThan(0.005);
    expect(Math.abs(variance - 1 / 12)).toBeLessThan(0.002);
    expect(Math.abs(neighbours)).toBeLessThan(0.002);
    expect(Math.min(...numbers.slice(0, 1000))).toBeGreaterThanOrEqual(0);
    expect(Math.max(...numbers.slice(0, 1000))).toBeLessThan(1);
  });

  test('refuses what is no safe integer', () => {
    expect(() => new CounterRandom(0.5, 0)).toThrow(RangeError);
    expect(() => new CounterRandom(2 ** 53, 0)).toThrow(RangeError);
  });
});
