import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { differencesOf } from '../../bench/lm-eval.ts';

const item = (question: string, logprobs: number[]) => ({ question, logprobs, isRight: true });

describe('how far two scores lie apart', () => {
  test('each choice by its question, whatever the order; and the questions whose likeliest choice is another', () => {
    const ours = { items: [item('a', [-1, -2]), item('b', [-3, -1])] };
    const theirs = { items: [item('b', [-1, -1.5]), item('a', [-1, -2.25])] };
    expect(differencesOf(ours, theirs)).toEqual({ each: [0, 0.25, 2, 0.5], answers: 1 });
  });

  test('scores of different tasks have no difference', () => {
    expect(() => differencesOf({ items: [item('a', [-1, -2])] }, { items: [item('b', [-1, -2])] })).toThrow('no answer to "a"');
    expect(() => differencesOf({ items: [item('a', [-1, -2])] }, { items: [item('a', [-1])] })).toThrow('no answer to "a"');
  });
});

test('the task: every question once, four different choices, the right one at any place', () => {
  const path = new URL('../../bench/lm-eval/common_sense.jsonl', import.meta.url);
  const items = readFileSync(path, 'utf8')
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as { question: string; choices: string[]; answer: number });
  expect(new Set(items.map(({ question }) => question)).size).toBe(items.length);
  for (const { question, choices, answer } of items) {
    expect(new Set(choices).size, question).toBe(4);
    expect(choices[answer], question).toBeDefined();
  }
  expect(new Set(items.map(({ answer }) => answer)).size).toBe(4);
});
