/** QuickRequest: any JSON at all is either a valid job or a client's error that names a field. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { JsonObject } from '../../gateway/json-body.ts';
import { MAX_TEXT_BYTES, parseDetokenizeRequest, parseTokenizeRequest } from '../../gateway/quick-request.ts';
import { ApiError } from '../../shared/errors.ts';
import { isQuick, Job } from '../../shared/job.ts';

const BOUNDS = { maxMessageCount: 3 };
const user = (content: string) => ({ role: 'user', content });

function attempt(parse: () => Pick<Job, 'model' | 'task'>): void {
  try {
    const job = { version: 1, id: 'a', tenant: 't', shard: 's', submittedAt: 1, ...parse() };
    expect(Job.safeParse(job).error).toBeUndefined();
    expect(isQuick(job)).toBe(true);
  } catch (error) {
    expect(error).toBeInstanceOf(ApiError);
    expect((error as ApiError).status).toBe(400);
    expect((error as ApiError).param).toBeTypeOf('string');
  }
}

test('any values under the known names', () => {
  const names = [
    'model',
    'prompt',
    'messages',
    'tokens',
    'add_special_tokens',
    'add_generation_prompt',
    'return_token_strs',
    'tools',
    'chat_template_kwargs',
  ];
  fc.assert(
    fc.property(fc.dictionary(fc.constantFrom(...names), fc.jsonValue({ maxDepth: 3 })), body => {
      attempt(() => parseTokenizeRequest(body as JsonObject, BOUNDS));
      attempt(() => parseDetokenizeRequest(body as JsonObject));
    }),
    { numRuns: 500 },
  );
});

describe('what becomes of it', () => {
  test('a text', () => {
    expect(parseTokenizeRequest({ prompt: 'a\ud800' }, BOUNDS)).toMatchObject({
      model: 'default',
      prompt: { kind: 'text', text: 'a\ufffd' },
      task: { kind: 'tokenize', addSpecialTokens: true, addGenerationPrompt: true, tellTexts: false },
    });
  });

  test('an empty text is one too', () => {
    expect(parseTokenizeRequest({ prompt: '' }, BOUNDS).prompt).toEqual({ kind: 'text', text: '' });
    expect(parseDetokenizeRequest({ tokens: [] }).prompt).toEqual({ kind: 'tokens', tokenIds: [] });
  });

  test('a conversation', () => {
    const options = { add_special_tokens: false, add_generation_prompt: false, return_token_strs: true };
    expect(parseTokenizeRequest({ messages: [user('hi')], ...options }, BOUNDS)).toMatchObject({
      prompt: { kind: 'chat', messages: [user('hi')] },
      task: { addSpecialTokens: false, addGenerationPrompt: false, tellTexts: true },
    });
  });
});

describe('what is refused, by the name of the field', () => {
  const long = 'x'.repeat(MAX_TEXT_BYTES + 1);
  test.each<[body: object, param: string, code: string]>([
    [{}, 'prompt', 'missing_required_parameter'],
    [{ prompt: null, messages: null }, 'prompt', 'missing_required_parameter'],
    [{ prompt: ['a'] }, 'prompt', 'invalid_value'],
    [{ prompt: 'a', messages: [user('a')] }, 'messages', 'invalid_value'],
    [{ messages: [] }, 'messages', 'invalid_value'],
    [{ messages: Array(4).fill(user('a')) }, 'messages', 'invalid_value'],
    [{ messages: [{ role: 'tool', content: 'a', tool_call_id: 'x' }] }, 'messages[0].tool_call_id', 'invalid_value'],
    [{ prompt: long }, 'prompt', 'invalid_value'],
    [{ messages: [user(long)] }, 'messages', 'invalid_value'],
    [{ prompt: 'a', continue_final_message: true }, 'continue_final_message', 'invalid_value'],
    [{ prompt: 'a', chat_template: '{{ 1 }}' }, 'chat_template', 'unsupported_parameter'],
  ])('%#', (body, param, code) => {
    expect(() => parseTokenizeRequest(body as JsonObject, BOUNDS)).toThrow(expect.objectContaining({ param, code }));
  });

  test.each<[body: object, param: string]>([
    [{}, 'tokens'],
    [{ tokens: '1' }, 'tokens'],
    [{ tokens: [1, -1] }, 'tokens[1]'],
    [{ tokens: [1.5] }, 'tokens[0]'],
    [{ tokens: [2 ** 31] }, 'tokens[0]'],
    [{ tokens: new Array(MAX_TEXT_BYTES + 1).fill(1) }, 'tokens'],
  ])('tokens %#', (body, param) => {
    expect(() => parseDetokenizeRequest(body as JsonObject)).toThrow(expect.objectContaining({ param }));
  });
});
