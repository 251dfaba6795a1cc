/** Streaming: the events of a chat completion, byte for byte, and that every fault in between is seen or mended, never hidden. */
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { BATCHER_CARDS } from '../../shared/keys.ts';
import { chunksOf, parseSse, readSse, textOf } from './sse-client.ts';
import { type ErrorReply, eventually, type Stack, scripted, startStack } from './stack.ts';

let stack: Stack;
beforeAll(async () => {
  stack = await startStack({
    bindings: { SLUICE_HEARTBEAT_MS: '200', SLUICE_QUEUE_TIMEOUT_MS: '6000', SLUICE_SILENCE_TIMEOUT_MS: '1500' },
  });
});
afterAll(() => stack.stop());

const pieces = ['Paris ', 'is ', '漢', '😀é', ' nice'];
const whole = pieces.join('');

describe('shape', () => {
  test('cases 3 and 9: without usage, every chunk has its choice, role once, finish_reason null until the end', async () => {
    const response = await stack.post(scripted({ pieces }, { stream: true }));
    expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    expect(response.headers.get('x-request-id')).toMatch(/^req_/);
    const stream = await readSse(response);
    const chunks = chunksOf(stream);
    expect(textOf(chunks)).toBe(whole);
    expect(stream.text).not.toContain('\ufffd');
    for (const [index, chunk] of chunks.entries()) {
      expect(Object.keys(chunk)).not.toContain('usage');
      expect({ ...chunk, choices: [], timings: undefined }).toEqual({
        id: chunks[0]!.id,
        object: 'chat.completion.chunk',
        created: chunks[0]!.created,
        model: 'test-model',
        choices: [],
        timings: undefined,
      });
      expect(chunk.choices.length).toBe(1);
      expect(Object.keys(chunk.choices[0]!).sort()).toEqual(['delta', 'finish_reason', 'index', 'logprobs']);
      expect(chunk.choices[0]!.delta.role).toBe(index === 0 ? 'assistant' : undefined);
      expect(chunk.choices[0]!.finish_reason).toBe(index === chunks.length - 1 ? 'stop' : null);
    }
    expect(chunks[0]!.id).toMatch(/^chatcmpl-/);
    expect(chunks.at(-1)!.choices[0]!.delta).toEqual({});
    expect(chunks.at(-1)!.timings).toEqual({ queue_ms: 1, prefill_ms: 2, ttft_ms: 3, decode_tokens_per_second: 4 });
  });

  test('case 4: with usage, one last chunk without choices, usage null before', async () => {
    const stream = await readSse(await stack.post(scripted({ pieces }, { stream: true, stream_options: { include_usage: true } })));
    const chunks = chunksOf(stream);
    const last = chunks.pop()!;
    expect(last.choices).toEqual([]);
    expect(last.usage).toMatchObject({ completion_tokens: 5, prompt_tokens_details: { cached_tokens: 0 } });
    expect(last.usage!.total_tokens).toBe((last.usage!.prompt_tokens as number) + 5);
    expect(chunks.map(chunk => chunk.usage)).toEqual(chunks.map(() => null));
    expect(chunks.at(-1)!.choices[0]!.finish_reason).toBe('stop');
  });

  test('case 6: three choices, each with its own index, role and finish_reason', async () => {
    const chunks = chunksOf(await readSse(await stack.post(scripted({ pieces }, { stream: true, n: 3, seed: 7 }))));
    for (const index of [0, 1, 2]) {
      const own = chunks.flatMap(chunk => chunk.choices).filter(choice => choice.index === index);
      expect(own.map(choice => choice.delta.content ?? '').join('')).toBe(whole);
      expect(own.filter(choice => choice.delta.role !== undefined).length).toBe(1);
      expect(own.filter(choice => choice.finish_reason !== null).length).toBe(1);
    }
  });

  test('case 9: max_tokens', async () => {
    const chunks = chunksOf(await readSse(await stack.post(scripted({ pieces }, { stream: true, max_tokens: 2 }))));
    expect(textOf(chunks)).toBe('Paris is ');
    expect(chunks.at(-1)!.choices[0]!.finish_reason).toBe('length');
  });

  test('case 15: logprobs, streamed and whole', async () => {
    const chunks = chunksOf(await readSse(await stack.post(scripted({ pieces }, { stream: true, logprobs: true }))));
    const streamed = chunks.flatMap(chunk => chunk.choices[0]!.logprobs?.content ?? []);
    expect(streamed.map(entry => entry.token)).toEqual(pieces);
    expect(streamed[2]).toEqual({ token: '漢', logprob: -0.5, bytes: [0xe6, 0xbc, 0xa2], top_logprobs: [] });
    const reply = (await (await stack.post(scripted({ pieces }, { logprobs: true }))).json()) as { choices: { logprobs: unknown }[] };
    expect(reply.choices[0]!.logprobs).toEqual({ content: streamed, refusal: null });
  });

  test('an id on each event, the sequence number, never going back', async () => {
    const stream = await readSse(await stack.post(scripted({ pieces }, { stream: true })));
    const ids = [...new Set(stream.events.map(event => event.id).filter(id => id !== undefined))].map(Number);
    expect(ids).toEqual([1, 2, 3, 4, 5, 6]);
  });

  test('a whole reply', async () => {
    const response = await stack.post(scripted({ pieces }, { n: 2 }));
    const reply = (await response.json()) as Record<string, unknown>;
    expect(reply).toMatchObject({
      object: 'chat.completion',
      model: 'test-model',
      usage: { completion_tokens: 10 },
      timings: { queue_ms: 1 },
    });
    expect(reply.choices).toEqual(
      [0, 1].map(index => ({
        index,
        message: { role: 'assistant', content: whole, refusal: null },
        logprobs: null,
        finish_reason: 'stop',
      })),
    );
  });
});

describe('faults between batcher and client', () => {
  const read = async (script: object) => textOf(chunksOf(await readSse(await stack.post(scripted(script, { stream: true })))));

  test('entries that come twice are told once', async () => {
    expect(await read({ pieces, copies: 3 })).toBe(whole);
  });

  test('entries that never came are read from the record', async () => {
    expect(await read({ pieces, missing: [2, 3], stepMs: 5 })).toBe(whole);
  });

  test('an older attempt is not listened to', async () => {
    expect(await read({ pieces, stale: true, stepMs: 5 })).toBe(whole);
  });

  test('an attempt that was silent long enough to be replaced is checked against the record', async () => {
    expect(await read({ pieces, stepMs: 1_100 })).toBe(whole);
  });

  test('case 7: an error in the middle is told in the stream, without a finish_reason', async () => {
    const stream = await readSse(
      await stack.post(scripted({ pieces, error: { code: 'generation_failed', message: 'It broke.', at: 3 } }, { stream: true })),
    );
    const datas = stream.events.map(event => JSON.parse(event.data));
    expect(datas.at(-1)).toEqual({ error: { message: 'It broke.', type: 'server_error', param: null, code: 'generation_failed' } });
    expect(datas.slice(0, -1).every(chunk => chunk.choices[0].finish_reason === null)).toBe(true);
    expect(stream.text).not.toContain('[DONE]');
  });

  test('an error code that this version does not know', async () => {
    const response = await stack.post(scripted({ error: { code: 'from_the_future', message: 'Odd.', at: 0 }, pieces }));
    expect(response.status).toBe(500);
    expect(((await response.json()) as ErrorReply).error).toMatchObject({ code: 'generation_failed', message: 'Odd.' });
  });

  test.each([true, false])('case 7: a batcher that falls silent, stream %s', async stream => {
    const response = await stack.post(scripted({ pieces, silentAt: 2 }, { stream }));
    if (stream) {
      const { events, text } = await readSse(response);
      expect(JSON.parse(events.at(-1)!.data).error.code).toBe('generation_failed');
      expect(text).not.toContain('[DONE]');
    } else {
      // Heartbeats went out, so the status says 200: the body is cut off and no client takes it for an answer.
      await expect(response.text()).rejects.toThrow();
    }
  });
});

describe('waiting', () => {
  test('case 8: comments with the place in the queue, and no event without data', async () => {
    await stack.source.hold();
    const responses = await Promise.all([1, 2, 3].map(() => stack.post(scripted({ pieces }, { stream: true }))));
    const reads = responses.map(response => ({ reader: response.body!.getReader(), parts: [] as Uint8Array[] }));
    for (const { reader, parts } of reads) {
      while (!Buffer.concat(parts).includes('queued position=')) parts.push((await reader.read()).value!);
    }
    stack.source.resume();
    for (const { reader, parts } of reads) {
      for (let next = await reader.read(); !next.done; next = await reader.read()) parts.push(next.value);
    }
    const streams = reads.map(({ parts }) => parseSse(Buffer.concat(parts).toString()));
    for (const stream of streams) {
      expect(textOf(chunksOf(stream))).toBe(whole);
      expect(stream.text).not.toMatch(/^data: ?:/m);
    }
    const positions = streams.map(stream => stream.comments.flatMap(comment => /position=(\d+)/.exec(comment)?.[1] ?? [])[0]);
    expect([...positions].sort()).toEqual(['1', '2', '3']);
  });

  test('the estimate of the wait: told when rates are known, longer further behind', async () => {
    const { card } = stack.source;
    Object.assign(card, { runningCount: card.maxRunningCount, prefillTokensPerSecond: 1_000, decodeTokensPerSecond: 10 });
    await stack.source.publish();
    await (await stack.post(scripted({ pieces }))).text();
    await stack.source.hold();
    try {
      const estimates: number[] = [];
      for (let place = 1; place <= 3; place++) {
        const reader = (await stack.post(scripted({ pieces }, { stream: true }))).body!.getReader();
        let text = '';
        let told: RegExpExecArray | null = null;
        while (told === null) {
          text += Buffer.from((await reader.read()).value!).toString();
          told = new RegExp(`queued position=${place} eta_ms=(\\d+)\\n`).exec(text);
        }
        estimates.push(Number(told[1]));
      }
      // Each answer took tokens of the ten a second that there are.
      expect(estimates[0]).toBeGreaterThan(100);
      expect(estimates[1]).toBeGreaterThan(estimates[0]!);
      expect(estimates[2]).toBeGreaterThan(estimates[1]!);
    } finally {
      Object.assign(card, { runningCount: 0, prefillTokensPerSecond: 0, decodeTokensPerSecond: 0 });
      await stack.source.publish();
      stack.source.resume();
    }
  });

  test('case 8: comments between tokens too', async () => {
    const stream = await readSse(await stack.post(scripted({ pieces, stepMs: 700 }, { stream: true })));
    expect(textOf(chunksOf(stream))).toBe(whole);
    expect(stream.comments.filter(comment => comment === 'working').length).toBeGreaterThan(2);
  });

  test('a whole reply that takes long begins with white space, and is JSON', async () => {
    const response = await stack.post(scripted({ pieces, stepMs: 300 }));
    const text = await response.text();
    expect(text).toMatch(/^\n+\{/);
    expect(JSON.parse(text).choices[0].message.content).toBe(whole);
  });

  test.each([true, false])('a request that nobody takes ends, stream %s', async stream => {
    await stack.source.hold();
    try {
      const response = await stack.post(scripted({ pieces }, { stream }));
      if (stream) {
        const { events } = await readSse(response);
        expect(JSON.parse(events.at(-1)!.data).error.code).toBe('no_batcher');
      } else {
        await expect(response.text()).rejects.toThrow();
      }
      await eventually(
        'the job to leave the queue',
        async () => (await stack.source.redis.zcard('sluice:{test-model}:generate:prioritized')) === 0,
      );
    } finally {
      stack.source.resume();
    }
  });

  test('case 49: 503 while the only batcher drains, 200 again when it serves', async () => {
    stack.source.card.state = 'draining';
    await stack.source.publish();
    await eventually('503', async () => (await stack.post(scripted({ pieces }))).status === 503);
    const response = await stack.post(scripted({ pieces }));
    expect(Number(response.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(((await response.json()) as ErrorReply).error.code).toBe('no_batcher');
    expect((await fetch(`${stack.gateway.url}/ready`)).status).toBe(503);
    stack.source.card.state = 'serving';
    await stack.source.publish();
    await eventually('200', async () => (await stack.post(scripted({ pieces }))).status === 200);
  });

  test('cards that are stale, broken or of another version do no harm', async () => {
    const { card, redis } = stack.source;
    await redis.hset(
      BATCHER_CARDS,
      'broken',
      '{',
      'list',
      '[]',
      'old',
      JSON.stringify({ ...card, model: 'old', writtenAt: Date.now() - 60_000 }),
    );
    await redis.hset(BATCHER_CARDS, 'newer', JSON.stringify({ ...card, model: 'the-newer', version: 9, extra: {} }));
    await redis.hset(BATCHER_CARDS, 'ancient', JSON.stringify({ ...card, model: 'ancient', writtenAt: 5 }));
    await eventually('the ancient card to be forgotten', async () => {
      await fetch(`${stack.gateway.url}/ready`);
      return (await redis.hexists(BATCHER_CARDS, 'ancient')) === 0;
    });
    const codeOf = async (model: string) =>
      ((await (await stack.post({ model, messages: [{ role: 'user', content: 'a' }] })).json()) as ErrorReply).error.code;
    expect(await codeOf('old')).toBe('no_batcher');
    expect(await codeOf('ancient')).toBe('model_not_found');
    await redis.hdel(BATCHER_CARDS, 'broken', 'list', 'old', 'newer');
  });
});

describe('the openai client, unchanged', () => {
  const client = () => new OpenAI({ baseURL: `${stack.gateway.url}/v1`, apiKey: stack.gateway.key, maxRetries: 0 });
  const messages = [{ role: 'user' as const, content: JSON.stringify({ pieces, stepMs: 250 }) }];

  test('whole', async () => {
    const reply = await client().chat.completions.create({ model: 'default', messages });
    expect(reply.choices[0]!.message.content).toBe(whole);
  });

  test('streamed, through heartbeats', async () => {
    const parts: string[] = [];
    for await (const chunk of await client().chat.completions.create({ model: 'default', messages, stream: true })) {
      parts.push(chunk.choices[0]?.delta.content ?? '');
    }
    expect(parts.join('')).toBe(whole);
  });

  test('errors arrive as errors', async () => {
    await expect(client().chat.completions.create({ model: 'nope', messages })).rejects.toMatchObject({
      status: 404,
      code: 'model_not_found',
    });
    const broken = [
      { role: 'user' as const, content: JSON.stringify({ pieces, error: { code: 'generation_failed', message: 'It broke.', at: 2 } }) },
    ];
    const stream = await client().chat.completions.create({ model: 'default', messages: broken, stream: true });
    await expect(
      (async () => {
        for await (const _ of stream);
      })(),
    ).rejects.toMatchObject({ code: 'generation_failed' });
  });

  test('lists models', async () => {
    const names: string[] = [];
    for await (const model of client().models.list()) names.push(model.id);
    expect(names).toEqual(['test-model']);
  });
});

test('the log holds no prompt, no answer and no key', async () => {
  expect(stack.gateway.output()).not.toContain('Paris');
  expect(stack.gateway.output()).not.toContain(stack.gateway.key);
});
