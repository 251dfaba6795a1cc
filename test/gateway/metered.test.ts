/** Metered: how the headers say a time, and how many tokens a prompt is taken for. */
import { expect, test } from 'vitest';
import { duration } from '../../gateway/limit-headers.ts';
import { estimatePromptTokens } from '../../gateway/token-estimate.ts';

test.each([
  [0, '0ms'],
  [999.4, '999ms'],
  [1_000, '1s'],
  [1_500, '1.5s'],
  [59_990, '59.99s'],
  [59_999, '1m0s'],
  [60_000, '1m0s'],
  [119_999, '2m0s'],
  [365_000, '6m5s'],
])('%d ms is %s', (ms, text) => {
  expect(duration(ms)).toBe(text);
});

test('a prompt is estimated by its bytes, rather too high for English', () => {
  const chat = (content: string) => estimatePromptTokens({ prompt: { kind: 'chat', messages: [{ role: 'user', content }] } });
  expect(chat('')).toBeGreaterThan(0);
  expect(chat('x'.repeat(300)) - chat('')).toBe(100);
  expect(chat('漢'.repeat(100)) - chat('')).toBe(100);
  expect(estimatePromptTokens({ prompt: { kind: 'tokens', tokenIds: [1, 2, 3] } })).toBe(3);
  const text = { kind: 'text' as const, text: 'abc' };
  expect(estimatePromptTokens({ prompt: text, morePrompts: [text, text] })).toBe(3 * estimatePromptTokens({ prompt: text }));
});
