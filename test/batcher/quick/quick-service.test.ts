/** QuickService: the real thread over the real vocabulary: what it answers, what it refuses, and that it comes back after its end. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { QuickQuestion } from '../../../batcher/quick/quick-answer.ts';
import { QuickService } from '../../../batcher/quick/quick-service.ts';
import { preparedDefaultModel } from '../model/default-model.ts';

let service: QuickService;
beforeAll(async () => {
  service = new QuickService({ modelDirectory: (await preparedDefaultModel()).directory, contextTokens: 64 });
});
afterAll(() => service.close());

const TOKENIZE = { kind: 'tokenize' as const, addSpecialTokens: true, addGenerationPrompt: true, tellTexts: false };
const text = (words: string, more: object = {}): QuickQuestion => ({
  prompt: { kind: 'text', text: words },
  task: { ...TOKENIZE, ...more },
});
const chat = (content: string, more: object = {}): QuickQuestion => ({
  prompt: { kind: 'chat', messages: [{ role: 'user', content }] },
  task: { ...TOKENIZE, ...more },
});
const back = (tokenIds: number[]): QuickQuestion => ({ prompt: { kind: 'tokens', tokenIds }, task: { kind: 'detokenize' } });

async function tokensOf(question: QuickQuestion): Promise<number[]> {
  const answer = await service.ask(question);
  return answer.type === 'tokens' ? answer.tokenIds : [];
}

test('a text there and back, control tokens spelled', async () => {
  const words = 'Hello <|im_start|>wörld 😀\n';
  const tokenIds = await tokensOf(text(words));
  expect(await service.ask(back(tokenIds))).toEqual({ type: 'text', text: words });
  expect(tokenIds).toContain(1);
  expect(await service.ask(text('hi there', { tellTexts: true }))).toMatchObject({ texts: ['hi', ' there'], contextTokens: 64 });
  expect(await tokensOf(text(''))).toEqual([]);
});

test('a conversation, with the turn that is to come and without', async () => {
  const open = await tokensOf(chat('hi'));
  const closed = await tokensOf(chat('hi', { addGenerationPrompt: false }));
  expect(open.slice(0, closed.length)).toEqual(closed);
  expect(await service.ask(back(open.slice(closed.length)))).toEqual({ type: 'text', text: '<|im_start|>assistant\n' });
});

test('a conversation that is longer than the context is counted all the same', async () => {
  expect((await tokensOf(chat('word '.repeat(9_000)))).length).toBeGreaterThan(9_000);
});

test('questions that are asked at once are told apart', async () => {
  const words = Array.from({ length: 20 }, (_, index) => `number ${index}`);
  const answers = await Promise.all(words.map(async word => service.ask(back(await tokensOf(text(word))))));
  expect(answers).toEqual(words.map(word => ({ type: 'text', text: word })));
});

test('a token that is none is refused by name', async () => {
  await expect(service.ask(back([1, 49_152]))).rejects.toMatchObject({
    code: 'invalid_value',
    param: 'tokens',
    message: expect.stringContaining('49152'),
  });
});

test('a thread that ends takes its questions along, and the next one starts another', async () => {
  const asked = service.ask(text('x'.repeat(1 << 20)));
  asked.catch(() => undefined);
  await service.close();
  await expect(asked).rejects.toThrow('ended');
  expect(await tokensOf(text('hi'))).toHaveLength(1);
});
