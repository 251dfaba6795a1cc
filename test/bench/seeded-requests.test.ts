import { expect, test } from 'vitest';
import { differingBytes, seededRequests, shuffled } from '../../bench/seeded-requests.ts';

test('requests are the same in every run, with a seed each, every kind of sampling with one answer and with two', () => {
  const requests = seededRequests(64);
  expect(seededRequests(64)).toEqual(requests);
  expect(new Set(requests.map(request => request.parameters.seed)).size).toBe(64);
  const kinds = new Set(
    requests.map(({ parameters: { seed: _seed, max_tokens: _max, ignore_eos: _eos, ...kind } }) => JSON.stringify(kind)),
  );
  expect(kinds.size).toBe(16);
  for (const { promptTokens, parameters } of requests) {
    expect(promptTokens).toBeGreaterThanOrEqual(44);
    expect(promptTokens).toBeLessThanOrEqual(600);
    expect(parameters.max_tokens).toBeGreaterThanOrEqual(24);
    expect(parameters.max_tokens).toBeLessThanOrEqual(48);
  }
});

test('a shuffle has every number once, another order for another seed', () => {
  const order = shuffled(50, 7);
  expect(order.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 50 }, (_, index) => index));
  expect(shuffled(50, 7)).toEqual(order);
  expect(shuffled(50, 8)).not.toEqual(order);
});

test('differing bytes go from the first difference to the end of the longer text', () => {
  expect(differingBytes('', '')).toBe(0);
  expect(differingBytes('same', 'same')).toBe(0);
  expect(differingBytes('abcd', 'abXd')).toBe(2);
  expect(differingBytes('ab', 'abcd')).toBe(2);
  expect(differingBytes('abcd', '')).toBe(4);
  // Bytes, not characters: both begin with the same byte.
  expect(differingBytes('é', 'è')).toBe(1);
});
