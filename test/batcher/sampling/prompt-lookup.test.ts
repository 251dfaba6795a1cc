import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { PromptLookup } from '../../../batcher/sampling/prompt-lookup.ts';

/** By its definition: the last earlier occurrence of the longest end of 4 to 2 tokens, and what follows it, running into the guess itself. */
function scan(tokens: readonly number[], count: number): number[] {
  for (let length = 4; length >= 2; length--) {
    for (let end = tokens.length - 1; end >= length; end--) {
      if (tokens.slice(end - length, end).join() !== tokens.slice(-length).join()) continue;
      const whole = [...tokens];
      for (let i = 0; i < count; i++) whole.push(whole[end + i]!);
      return whole.slice(tokens.length);
    }
  }
  return [];
}

describe('PromptLookup', () => {
  test('proposes what a full scan would, after every token', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: 5 }), { maxLength: 80 }),
        fc.nat({ max: 60 }),
        fc.integer({ min: 0, max: 12 }),
        (tokens, prompt, count) => {
          const lookup = new PromptLookup(tokens.slice(0, prompt));
          for (let length = Math.min(prompt, tokens.length); length <= tokens.length; length++) {
            expect(lookup.propose(count)).toEqual(scan(tokens.slice(0, length), count).slice(0, count));
            if (length < tokens.length) lookup.append(tokens[length]!);
          }
        },
      ),
      { seed: 7 },
    );
  });

  test('nothing to go by', () => {
    expect(new PromptLookup([]).propose(4)).toEqual([]);
    expect(new PromptLookup([7]).propose(4)).toEqual([]);
    expect(new PromptLookup([1, 2, 3, 4, 5]).propose(4)).toEqual([]);
  });

  test('repetition goes on', () => {
    expect(new PromptLookup([9, 9, 9]).propose(5)).toEqual([9, 9, 9, 9, 9]);
    expect(new PromptLookup([1, 2, 3, 1, 2, 3, 1]).propose(4)).toEqual([2, 3, 1, 2]);
  });
});
