/** What the prefix cache tells one tenant of another: nothing, but for what the operator has made public. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type ChatReply, Product, user } from './product.ts';

const RULES = `You answer for the town library. ${'Be brief, be kind, and never guess opening hours. '.repeat(8)}`;
const SECRET = `Our plan for next year: ${'buy the old mill and turn it into a reading room. '.repeat(12)}`;

let product: Product;
let keys: Record<'a' | 'b', string>;
const folder = mkdtempSync(join(tmpdir(), 'sluice-tenants-'));
beforeAll(async () => {
  const file = join(folder, 'rules.txt');
  writeFileSync(file, RULES);
  product = await Product.start({ batcherArguments: ['--public-prefix', file], bindings: { SLUICE_KEY_SECRET: 'x'.repeat(32) } });
  keys = { a: await product.makeKey('a'), b: await product.makeKey('b') };
});
afterAll(async () => {
  await product.stop();
  rmSync(folder, { recursive: true });
});

const cachedTokens = (reply: ChatReply) => reply.usage.prompt_tokens_details.cached_tokens;
const ask = (key: string, messages: unknown[]) => product.chat({ messages, max_tokens: 2, seed: 1 }, key);

it("case 39: finds a tenant's own prefix, and never another's", async () => {
  const messages = [{ role: 'system', content: SECRET }, user('When do we buy it?')];
  const cold = await ask(keys.a, messages);
  expect(cachedTokens(cold)).toBeLessThan(16);
  expect(cachedTokens(await ask(keys.a, messages))).toBeGreaterThan(100);
  expect(cachedTokens(await ask(keys.b, messages))).toBeLessThan(16);
});

it('shares a system message that the operator has made public, and nothing behind it', async () => {
  const question = `${'Is there a copy of Moby Dick, and where does it stand? '.repeat(12)}`;
  const messages = [{ role: 'system', content: RULES }, user(question)];
  const rulesOnly = [{ role: 'system', content: RULES }, user('Hello')];
  await ask(keys.a, messages);
  const ofA = cachedTokens(await ask(keys.a, messages));
  const ofB = cachedTokens(await ask(keys.b, messages));
  const { prompt_tokens: rulesTokens } = (await ask(keys.b, rulesOnly)).usage;
  expect(ofB).toBeGreaterThan(60);
  expect(ofB).toBeLessThanOrEqual(rulesTokens);
  expect(ofA).toBeGreaterThan(rulesTokens + 60);
});
