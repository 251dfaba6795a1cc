import { expect, test } from 'vitest';
import { readText } from '../../bench/passages.ts';
import { TracedPrompts } from '../../bench/traced-prompts.ts';

/** A token a word and a line's end, and seven of a template around them. */
const template = {
  renderChat(messages: readonly { content?: unknown }[]): number[] {
    const words = String(messages[0]!.content).match(/\n|\S+/g) ?? [];
    return [1, 2, 3, ...words.map(hashOf), 4, 5, 6, 7];
  },
};
const prompts = new TracedPrompts(await readText(), template);
const request = (promptTokens: number, blockIds?: number[]) => ({
  atMs: 0,
  promptTokens,
  completionTokens: 1,
  ...(blockIds && { blockIds }),
});

test('a prompt is as long as the trace says, template and all', () => {
  for (const tokens of [prompts.leastTokens, 64, 300]) expect(prompts.prompt(3, request(tokens), undefined).tokenIds).toHaveLength(tokens);
});

test('prompts without block ids differ from their first word on', () => {
  const [a, b] = [0, 1].map(index => prompts.prompt(index, request(64), undefined).tokenIds);
  expect(sameTokens(a!, b!)).toBe(3);
});

test('prompts share what their blocks share, and no more', () => {
  const blocks = (ids: number[], tokens = ids.length * 40) => prompts.prompt(0, request(tokens, ids), 40).tokenIds;
  const first = blocks([11, 12, 13]);
  expect(first.length).toBeGreaterThan(110);
  expect(first.length).toBeLessThanOrEqual(120);
  expect(blocks([11, 12, 13])).toEqual(first);
  // Two blocks of 40 tokens but for the end of the second one's line.
  const shared = sameTokens(blocks([11, 12, 14]), first);
  expect(shared).toBeGreaterThan(3 + 70);
  expect(shared).toBeLessThanOrEqual(3 + 82);
  expect(sameTokens(blocks([12, 11, 13]), first)).toBe(3);
  // A prompt that ends within a block has the beginning of it.
  expect(sameTokens(blocks([11, 12], 60), first)).toBeGreaterThan(45);
});

function sameTokens(a: readonly number[], b: readonly number[]): number {
  const place = a.findIndex((tokenId, index) => tokenId !== b[index]);
  return place < 0 ? a.length : place;
}

function hashOf(word: string): number {
  return [...word].reduce((hash, char) => (Math.imul(hash, 31) + char.charCodeAt(0)) | 0, 7);
}
