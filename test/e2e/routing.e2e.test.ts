/** Two batchers with the real model: a conversation's next turn finds what is left of the one before, and nobody else's does. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { parseCard } from '../../shared/batcher-card.ts';
import { BATCHER_CARDS, prefixesKey } from '../../shared/keys.ts';
import { type ChatReply, Product, textOf, user } from './product.ts';

const ADMIN_KEY = 'an-administrator-key-of-thirty-two-letters-or-more';

let product: Product;
const keys = new Map<string, string>();

beforeAll(async () => {
  product = await Product.start({
    batcherCount: 2,
    bindings: { SLUICE_ADMIN_KEY: ADMIN_KEY, SLUICE_KEY_SECRET: 'a-secret-of-thirty-two-letters-or-more-for-tests' },
  });
  for (const tenant of ['one', 'two', 'three']) {
    const reply = await fetch(`${product.baseUrl.replace(/v1$/, '')}admin/keys`, {
      method: 'POST',
      headers: { authorization: `Bearer ${ADMIN_KEY}`, 'content-type': 'application/json' },
      body: JSON.stringify({ tenant }),
    });
    keys.set(tenant, ((await reply.json()) as { key: string }).key);
  }
});
afterAll(() => product.stop());

async function ask(tenant: string, messages: unknown[], more: object = {}): Promise<ChatReply> {
  const reply = await fetch(`${product.baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${keys.get(tenant)}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'default', temperature: 0, max_tokens: 8, messages, ...more }),
  });
  if (reply.status !== 200) throw new Error(`${reply.status} ${await reply.text()}`);
  return (await reply.json()) as ChatReply;
}

/** Text blocks that the batchers have told they hold, together. */
async function heldCount(): Promise<number> {
  const ids = Object.values(await product.redis.hgetall(BATCHER_CARDS)).flatMap(json => parseCard(json)?.batcherId ?? []);
  const sizes = await Promise.all(ids.map(id => product.redis.hlen(prefixesKey(id))));
  // Each has one field that is no block.
  return sizes.reduce((sum, size) => sum + Math.max(0, size - 1), 0);
}

async function untilHeldMoreThan(count: number): Promise<void> {
  while ((await heldCount()) <= count) await new Promise(resolve => setTimeout(resolve, 50));
  // The gateway's cards and directory are this much behind at most, and a batcher's card a second.
  await new Promise(resolve => setTimeout(resolve, 1_500));
}

const beginning = (name: string) =>
  user(`${name} keeps bees. ${'The hives stand by the river and the keeper walks there each day. '.repeat(14)}`);

it('each next turn goes to the batcher that holds the conversation', async () => {
  for (const name of ['Anna', 'Bert', 'Cleo']) {
    const before = await heldCount();
    const first = await ask('one', [beginning(name)]);
    await untilHeldMoreThan(before);
    const turn = [beginning(name), { role: 'assistant', content: textOf(first) }, user('And then?')];
    const second = await ask('one', turn);
    // All of it but the tail of the first turn that is no whole block.
    expect(second.usage.prompt_tokens_details.cached_tokens).toBeGreaterThan(0.8 * first.usage.prompt_tokens);
  }
});

it('case 39: another tenant with the same words has none of it', async () => {
  const before = await heldCount();
  const messages = [beginning('Dora')];
  const first = await ask('one', messages);
  await untilHeldMoreThan(before);
  const again = await ask('one', messages);
  expect(again.usage.prompt_tokens_details.cached_tokens).toBeGreaterThan(0.8 * first.usage.prompt_tokens);
  for (const [tenant, more] of [
    ['two', {}],
    ['three', { cache_salt: 'one', user: 'one', tenant: 'one' }],
  ] as const) {
    const stranger = await ask(tenant, messages, more);
    expect(stranger.usage.prompt_tokens_details.cached_tokens).toBe(0);
    expect(stranger.usage.prompt_tokens).toBe(first.usage.prompt_tokens);
  }
});
