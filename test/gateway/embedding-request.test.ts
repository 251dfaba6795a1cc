/** EmbeddingRequest and its reply: any JSON at all is either a valid job or a client's error that names a field; numbers come back exactly. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parseEmbeddingRequest } from '../../gateway/embedding-request.ts';
import { EmbeddingsBody } from '../../gateway/embeddings-body.ts';
import type { JsonObject } from '../../gateway/json-body.ts';
import { ApiError } from '../../shared/errors.ts';
import { Job, promptsOf } from '../../shared/job.ts';
import { decodeEvents } from '../../shared/token-event.ts';

const ok = { model: 'default', input: 'hi' };

test('any values under the known names', () => {
  const names = ['model', 'input', 'encoding_format', 'dimensions', 'truncate_prompt_tokens', 'user', 'service_tier', '__proto__'];
  fc.assert(
    fc.property(fc.dictionary(fc.constantFrom(...names), fc.jsonValue({ maxDepth: 3 })), body => {
      try {
        const { job, promptTokensBound } = parseEmbeddingRequest({ ...ok, ...body } as JsonObject);
        expect(Job.safeParse({ version: 1, id: 'a', tenant: 't', shard: 's', submittedAt: 1, ...job }).error).toBeUndefined();
        expect(promptTokensBound).toBeGreaterThan(0);
      } catch (error) {
        expect(error).toBeInstanceOf(ApiError);
        expect((error as ApiError).status).toBe(400);
        expect((error as ApiError).param).toBeTypeOf('string');
      }
    }),
    { numRuns: 500 },
  );
});

describe('what becomes of it', () => {
  test.each<[string, unknown, object[]]>([
    ['a text', 'a\ud800', [{ kind: 'text', text: 'a\ufffd' }]],
    ['texts', ['a', 'b'], ['a', 'b'].map(text => ({ kind: 'text', text }))],
    ['token ids', [1, 2], [{ kind: 'tokens', tokenIds: [1, 2] }]],
    ['lists of token ids', [[1, 2], [3]], [[1, 2], [3]].map(tokenIds => ({ kind: 'tokens', tokenIds }))],
  ])('%s', (_name, input, expected) => {
    expect(promptsOf(parseEmbeddingRequest({ ...ok, input }).job)).toEqual(expected);
  });

  test('options', () => {
    const asked = { ...ok, dimensions: 8, truncate_prompt_tokens: -1, encoding_format: 'base64', service_tier: 'flex' };
    expect(parseEmbeddingRequest(asked)).toMatchObject({
      encodingFormat: 'base64',
      job: { task: { kind: 'embed', dimensions: 8, truncateTokens: expect.any(Number) }, serviceClass: 'flex', stopping: { maxTokens: 0 } },
    });
  });
});

describe('what is refused, by the name of the field', () => {
  test.each<[object, string]>([
    [{ input: undefined }, 'input'],
    [{ input: null }, 'input'],
    [{ input: '' }, 'input'],
    [{ input: [] }, 'input'],
    [{ input: ['a', ''] }, 'input[1]'],
    [{ input: ['a', 1] }, 'input[1]'],
    [{ input: [[1], []] }, 'input[1]'],
    [{ input: [1, -1] }, 'input[1]'],
    [{ input: new Array(2_049).fill('a') }, 'input'],
    [{ encoding_format: 'hex' }, 'encoding_format'],
    [{ dimensions: 0 }, 'dimensions'],
    [{ truncate_prompt_tokens: 0 }, 'truncate_prompt_tokens'],
    [{ truncate_prompt_tokens: -2 }, 'truncate_prompt_tokens'],
    [{ model: '' }, 'model'],
  ])('%j', (more, param) => {
    expect(() => parseEmbeddingRequest({ ...ok, ...more } as JsonObject)).toThrow(expect.objectContaining({ param }));
  });

  test('2,048 inputs are let through', () => {
    expect(promptsOf(parseEmbeddingRequest({ ...ok, input: new Array(2_048).fill('a') }).job)).toHaveLength(2_048);
  });
});

describe('the reply', () => {
  const head = { id: 'j', attempt: 1 };
  const base64 = (...numbers: number[]) => Buffer.from(Float32Array.from(numbers).buffer).toString('base64');
  const write = (encodingFormat: 'float' | 'base64', vectors: string[][]) => {
    const body = new EmbeddingsBody({ model: 'm', encodingFormat });
    let first = 0;
    let text = body.write({ ...head, seq: 0, type: 'accepted', promptTokens: 5 });
    for (const [index, some] of vectors.entries()) {
      const dimensions = Buffer.from(some[0]!, 'base64').length / 4;
      text += body.write({ ...head, seq: index + 1, type: 'embeddings', first, dimensions, vectors: some });
      first += some.length;
    }
    const usage = { promptTokens: 5, completionTokens: 0, cachedTokens: 0 };
    const timings = { queueMs: 0, prefillMs: 0, ttftMs: 0, decodeTokensPerSecond: 0 };
    return JSON.parse(text + body.write({ ...head, seq: 9, type: 'finish', usage, timings })) as {
      data: { index: number; embedding: number[] | string }[];
    };
  };

  test("has OpenAI's shape, whatever number of pieces it came in", () => {
    const [a, b, c] = [base64(1, 2), base64(3, 4), base64(5, 6)];
    const wanted = {
      object: 'list',
      data: [
        { object: 'embedding', index: 0, embedding: [1, 2] },
        { object: 'embedding', index: 1, embedding: [3, 4] },
        { object: 'embedding', index: 2, embedding: [5, 6] },
      ],
      model: 'm',
      usage: { prompt_tokens: 5, total_tokens: 5 },
    };
    expect(write('float', [[a, b], [c]])).toEqual(wanted);
    expect(write('base64', [[a], [b, c]]).data.map(({ embedding }) => embedding)).toEqual([a, b, c]);
  });

  test('tells every float32 exactly', () => {
    const finite = fc.float({ noNaN: true, noDefaultInfinity: true });
    fc.assert(
      fc.property(fc.array(finite, { minLength: 1, maxLength: 20 }), numbers => {
        const embedding = write('float', [[base64(...numbers)]]).data[0]!.embedding as number[];
        // JSON has no negative zero.
        expect([...Float32Array.from(embedding)].map(value => value + 0)).toEqual(numbers.map(value => value + 0));
      }),
    );
  });
});

test('events of vectors that are none are no events', () => {
  const event = (more: object) => JSON.stringify([{ id: 'j', attempt: 1, seq: 0, type: 'embeddings', first: 0, dimensions: 1, ...more }]);
  expect(decodeEvents(event({ vectors: ['AACAPw=='] }))).toHaveLength(1);
  for (const vectors of ['AACAPw==', ['AACAP'], ['AACAPwAAgD8='], ['@@@@@@=='], [1], undefined]) {
    expect(() => decodeEvents(event({ vectors }))).toThrow();
  }
});
