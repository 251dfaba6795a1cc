/** What the real model's template puts before every chat with one system message. */
import { expect, it } from 'vitest';
import { loadChat } from '../../batcher/model/chat-template.ts';
import { publicPrefixTokens } from '../../batcher/public-prefix.ts';
import { preparedDefaultModel } from './model/default-model.ts';

const RULES = 'You answer for the town library. Be brief, be kind, and never guess opening hours.';

it('is the system turn whole, and nothing of a user', async () => {
  const { template, tokenizer } = await loadChat(await preparedDefaultModel());
  const prefix = publicPrefixTokens(RULES, template);
  const chat = (content: string) =>
    template.renderChat([
      { role: 'system', content: RULES },
      { role: 'user', content },
    ]);
  for (const content of ['Hello', '東京', 'A', ' 1']) expect(chat(content).slice(0, prefix.length)).toEqual(prefix);
  const text = new TextDecoder().decode(Buffer.concat(prefix.map(id => tokenizer.tokenBytes(id, 'spelled'))));
  expect(text).toContain(RULES);
  expect(text).toMatch(/user\n?$/);
});
