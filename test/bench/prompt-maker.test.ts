import { expect, test } from 'vitest';
import { readText } from '../../bench/passages.ts';
import { PromptMaker } from '../../bench/prompt-maker.ts';

const TEMPLATE_TOKENS = 30;
const countTokens = (content: string) => TEMPLATE_TOKENS + content.split(/\s+/).length;

test('a prompt has as many tokens as asked for, and no two begin alike', async () => {
  const prompts = new PromptMaker(await readText(), countTokens);
  for (const tokenCount of [64, 1000, 5000]) expect(countTokens(prompts.content(3, tokenCount))).toBe(tokenCount);
  expect(prompts.content(1, 100).slice(0, 3)).not.toBe(prompts.content(2, 100).slice(0, 3));
});

test('where even the template is longer, it is the shortest there is', async () => {
  const prompts = new PromptMaker(await readText(), countTokens);
  expect(prompts.content(0, 5)).toBe(prompts.content(0, 1));
});
