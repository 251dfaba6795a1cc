/** CompletionRequest: any JSON at all is either a valid job or a client's error that names a field; nothing else comes out. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parseCompletionRequest } from '../../gateway/completion-request.ts';
import type { JsonObject } from '../../gateway/json-body.ts';
import { ApiError } from '../../shared/errors.ts';
import { Job, promptsOf } from '../../shared/job.ts';

const ok = { model: 'default', prompt: 'hi' };
const FIELDS = [
  ...['model', 'prompt', 'suffix', 'echo', 'best_of', 'n', 'logprobs', 'max_tokens', 'min_tokens', 'stop', 'stream', 'stream_options'],
  ...['temperature', 'top_p', 'top_k', 'min_p', 'typical_p', 'repetition_penalty', 'presence_penalty', 'frequency_penalty'],
  ...['logit_bias', 'seed', 'ignore_eos', 'service_tier', 'user', '__proto__'],
  ...['response_format', 'guided_json', 'guided_regex', 'guided_choice', 'guided_grammar'],
];

function attempt(body: JsonObject): void {
  try {
    const { job, promptTokensBound, keptCount } = parseCompletionRequest(body);
    expect(Job.safeParse({ version: 1, id: 'a', tenant: 't', shard: 's', submittedAt: 1, ...job }).error).toBeUndefined();
    expect(promptTokensBound).toBeGreaterThan(0);
    expect(keptCount).toBeLessThanOrEqual(job.choiceCount);
    expect(promptsOf(job).length * job.choiceCount).toBeLessThanOrEqual(128);
  } catch (error) {
    expect(error).toBeInstanceOf(ApiError);
    expect((error as ApiError).status).toBe(400);
    expect((error as ApiError).param).toBeTypeOf('string');
    expect((error as ApiError).message).not.toContain('undefined');
  }
}

test('any values under the known names', () => {
  fc.assert(
    fc.property(fc.dictionary(fc.constantFrom(...FIELDS), fc.jsonValue({ maxDepth: 3 })), body => {
      attempt({ ...ok, ...body });
      attempt(body);
    }),
    { numRuns: 500 },
  );
});

test('prompts of any make', () => {
  const id = fc.oneof(fc.nat(60_000), fc.integer(), fc.double(), fc.constant('1'));
  const one = fc.oneof(fc.string({ unit: 'binary' }), fc.array(id, { maxLength: 5 }), id, fc.constant(null));
  fc.assert(
    fc.property(fc.oneof(one, fc.array(one, { maxLength: 70 })), fc.integer({ min: 1, max: 8 }), (prompt, n) =>
      attempt({ ...ok, prompt, n }),
    ),
    { numRuns: 500 },
  );
});

describe('what becomes of it', () => {
  test.each([
    ['a text', 'a\ud800', [{ kind: 'text', text: 'a\ufffd' }]],
    ['texts', ['a', 'b'], ['a', 'b'].map(text => ({ kind: 'text', text }))],
    ['token ids', [1, 2], [{ kind: 'tokens', tokenIds: [1, 2] }]],
    ['lists of token ids', [[1, 2], [3]], [[1, 2], [3]].map(tokenIds => ({ kind: 'tokens', tokenIds }))],
    ['null', null, [{ kind: 'text', text: '' }]],
  ])('%s', (_name, prompt, expected) => {
    expect(promptsOf(parseCompletionRequest({ ...ok, prompt }).job)).toEqual(expected);
  });

  test('defaults: 16 tokens, one choice, no log-probabilities', () => {
    const { job, keptCount, wantsLogprobs } = parseCompletionRequest(ok);
    expect(job).toMatchObject({ stopping: { maxTokens: 16 }, choiceCount: 1 });
    expect(job.sampling.topLogprobs).toBeUndefined();
    expect(job.echo).toBeUndefined();
    expect([keptCount, wantsLogprobs]).toEqual([1, false]);
  });

  test('best_of asks for the log-probabilities that rank, and does not score the prompt for it', () => {
    const request = parseCompletionRequest({ ...ok, best_of: 4, n: 2, echo: true });
    expect(request).toMatchObject({
      keptCount: 2,
      wantsLogprobs: false,
      job: { choiceCount: 4, sampling: { topLogprobs: 0 }, echo: 'text' },
    });
    expect(parseCompletionRequest({ ...ok, echo: true, logprobs: 0 }).job.echo).toBe('scored');
  });

  test('a batcher has the last word on token ids and on nothing', () => {
    const isUncertain = (more: JsonObject) => parseCompletionRequest({ ...ok, ...more }).isPromptUncertain;
    for (const more of [{ prompt: '' }, { prompt: ['a', ''] }, { prompt: [1] }, { prompt: [[1]] }, { logit_bias: { 1: 1 } }]) {
      expect(isUncertain(more)).toBe(true);
    }
    expect(isUncertain({ prompt: ['a', 'b'] })).toBe(false);
  });

  test('the bound on prompt tokens is of all prompts, in bytes, with a BOS each', () => {
    expect(parseCompletionRequest({ ...ok, prompt: ['漢', 'ab'] }).promptTokensBound).toBe(3 + 1 + 2 + 1);
    expect(parseCompletionRequest({ ...ok, prompt: [[1, 2], [3]] }).promptTokensBound).toBe(3);
  });
});
