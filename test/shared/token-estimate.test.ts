import { expect, test } from 'vitest';
import { estimatePromptTokens } from '../../shared/token-estimate.ts';

test('a prompt is estimated by its bytes, rather too high for English', () => {
  const chat = (content: string) => estimatePromptTokens({ prompt: { kind: 'chat', messages: [{ role: 'user', content }] } });
  expect(chat('')).toBeGreaterThan(0);
  expect(chat('x'.repeat(300)) - chat('')).toBe(100);
  expect(chat('漢'.repeat(100)) - chat('')).toBe(100);
  expect(estimatePromptTokens({ prompt: { kind: 'tokens', tokenIds: [1, 2, 3] } })).toBe(3);
  const text = { kind: 'text' as const, text: 'abc' };
  expect(estimatePromptTokens({ prompt: text, morePrompts: [text, text] })).toBe(3 * estimatePromptTokens({ prompt: text }));
});
