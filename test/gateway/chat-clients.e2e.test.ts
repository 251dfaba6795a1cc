/** What an application may count on, whichever library it calls us with: streams, aborts, errors and retries as with OpenAI. */
import OpenAI from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { queueKey, SHARED_QUEUE } from '../../shared/keys.ts';
import { pythonPath, runPython } from '../e2e/python-packages.ts';
import { adminClient } from './admin-client.ts';
import { type Ask, CHAT_CLIENTS, type ChatClientOptions } from './chat-clients.ts';
import { eventually, type Stack, scripted, startStack } from './stack.ts';
import type { Script } from './token-source.ts';

let stack: Stack;
beforeAll(async () => {
  stack = await startStack({ bindings: { SLUICE_HEARTBEAT_MS: '100', SLUICE_CACHE_TTL_MS: '0' } });
});
afterAll(() => stack.stop());
afterEach(() => stack.source.resume());

const asking = (script: Script): Ask => ({ content: JSON.stringify(script) });

async function all(pieces: AsyncIterable<string>): Promise<string[]> {
  const list: string[] = [];
  for await (const piece of pieces) list.push(piece);
  return list;
}

describe.each(Object.entries(CHAT_CLIENTS))('%s', (_name, makeClient) => {
  /** Status and body of every HTTP reply that the library got. */
  function client(more: Partial<ChatClientOptions> = {}) {
    const replies: { status: number; text: Promise<string> }[] = [];
    const recording: typeof fetch = async (input, init) => {
      const response = await fetch(input, init);
      replies.push({
        status: response.status,
        text: response
          .clone()
          .text()
          .catch(() => ''),
      });
      return response;
    };
    const options = { baseUrl: `${stack.gateway.url}/v1`, key: stack.gateway.key, maxRetries: 2, fetch: recording, ...more };
    return { ...makeClient(options), replies };
  }

  test('a whole reply, its usage, and the same as a stream', async () => {
    const { whole, stream } = client();
    const pieces = ['Hé', 'llo ', '🌊', '\n\n', '{"a":1}'];
    expect(await whole(asking({ pieces }))).toEqual({ text: pieces.join(''), completionTokens: pieces.length });
    expect(await all(stream(asking({ pieces })))).toEqual(pieces);
  });

  test('case 8: heartbeats of a request that waits do no harm', async () => {
    const { stream, replies } = client();
    await stack.source.hold();
    const reading = all(stream(asking({ pieces: ['a', 'b', 'c'], stepMs: 300 })));
    await eventually('the stream to begin', () => replies.length === 1);
    await new Promise(resolve => setTimeout(resolve, 2_000));
    stack.source.resume();
    expect(await reading).toEqual(['a', 'b', 'c']);
    const text = await replies.at(-1)!.text;
    // Before the first event, and between two.
    expect([...text.matchAll(/^: queued position=1/gm)].length, text).toBeGreaterThan(1);
    expect(text).toMatch(/^id: \d+\ndata: .+\n\n: working\n/m);
  });

  test('an abort ends the iteration and frees the row', async () => {
    const { stream } = client();
    const abort = new AbortController();
    const seen: string[] = [];
    try {
      for await (const piece of stream({ ...asking({ pieces: ['x'], repeat: 10_000, stepMs: 5 }), signal: abort.signal })) {
        seen.push(piece);
        if (seen.length === 3) abort.abort();
      }
    } catch {
      // Some end quietly, some throw.
    }
    expect(seen.length).toBeLessThan(1_000);
    const id = stack.source.taken.at(-1)!;
    await eventually('the job to be cancelled', () => stack.source.cancelled.includes(id));
  });

  const refusals: [what: string, status: number, ask: Ask, more: Partial<ChatClientOptions>][] = [
    ['a wrong key', 401, { content: 'x' }, { key: 'sk-wrong' }],
    ['an unknown model', 404, { content: 'x', model: 'gpt-none' }, {}],
    ['a bad parameter', 400, { content: 'x', temperature: 9 }, {}],
  ];
  test.each(refusals)('%s is %i, and not tried again', async (_what, status, ask, more) => {
    for (const call of ['whole', 'stream'] as const) {
      const { replies, statusOf, ...calls } = client(more);
      const error = await (call === 'whole' ? calls.whole(ask) : all(calls.stream(ask))).then(
        () => undefined,
        (thrown: unknown) => thrown,
      );
      expect(statusOf(error)).toBe(status);
      expect(replies.map(reply => reply.status)).toEqual([status]);
    }
  });

  test('429 is told when nothing is to be tried again, and else tried until it fits', async () => {
    const admin = adminClient(stack.gateway);
    const { key } = await admin.makeKey({ tenant: 'busy', limits: { concurrent_requests: 1 } });
    const abort = new AbortController();
    const hogging = await stack.post(scripted({ pieces: ['x'], repeat: 100_000, stepMs: 20 }, { stream: true }), {
      headers: { authorization: `Bearer ${key}` },
      signal: abort.signal,
    });
    const { statusOf, ...impatient } = client({ key, maxRetries: 0 });
    const error = await all(impatient.stream(asking({ pieces: ['a'] }))).catch((thrown: unknown) => thrown);
    expect(statusOf(error)).toBe(429);
    expect(impatient.replies.length).toBe(1);

    const patient = client({ key, maxRetries: 5 });
    const reading = all(patient.stream(asking({ pieces: ['a', 'b'] })));
    await eventually('a first refusal', () => patient.replies.length > 0);
    abort.abort();
    await hogging.body?.cancel().catch(() => undefined);
    expect(await reading).toEqual(['a', 'b']);
    const statuses = patient.replies.map(reply => reply.status);
    expect([statuses[0], statuses.at(-1)]).toEqual([429, 200]);
  });

  test('an error in the middle of a stream is an error, after the text before it', async () => {
    const { stream } = client();
    const seen: string[] = [];
    const failing = asking({ pieces: ['a', 'b', 'c'], error: { code: 'generation_failed', message: 'The engine has failed.', at: 2 } });
    const reading = (async () => {
      for await (const piece of stream(failing)) seen.push(piece);
    })();
    await expect(reading).rejects.toThrow('The engine has failed.');
    expect(seen).toEqual(['a', 'b']);
  });
});

test('openai: reasoning is told apart, whole and streamed, and may come back', async () => {
  const openai = new OpenAI({ baseURL: `${stack.gateway.url}/v1`, apiKey: stack.gateway.key, maxRetries: 0 });
  const content = JSON.stringify({ reasoning: ['Hm, ', 'so.'], pieces: ['Par', 'is'] } satisfies Script);
  const asked = { model: 'default', messages: [{ role: 'user' as const, content }] };
  const { choices, usage } = await openai.chat.completions.create(asked);
  expect(choices[0]!.message).toMatchObject({ reasoning_content: 'Hm, so.', content: 'Paris' });
  expect(usage).toMatchObject({ completion_tokens: 4, completion_tokens_details: { reasoning_tokens: 2 } });
  const deltas: object[] = [];
  for await (const chunk of await openai.chat.completions.create({ ...asked, stream: true })) deltas.push(chunk.choices[0]!.delta);
  const role = { role: 'assistant', content: '', refusal: null };
  expect(deltas).toEqual([role, { reasoning_content: 'Hm, ' }, { reasoning_content: 'so.' }, { content: 'Par' }, { content: 'is' }, {}]);
  await openai.chat.completions.create({ ...asked, messages: [...asked.messages, choices[0]!.message, { role: 'user', content: 'And?' }] });
  const { prompt } = stack.source.jobs.get(stack.source.taken.at(-1)!)!;
  expect(prompt).toMatchObject({ messages: [{}, { role: 'assistant', content: 'Paris', reasoning: 'Hm, so.' }, {}] });
});

describe('openai (PyPI)', () => {
  const PROGRAM = `
import json, sys, openai
client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=0)
stream = client.chat.completions.create(model='default', messages=[{'role': 'user', 'content': sys.argv[3]}], stream=True)
print(json.dumps([chunk.choices[0].delta.content for chunk in stream if chunk.choices[0].delta.content]))`;

  test('case 8: heartbeats of a request that waits do no harm', async () => {
    const path = await pythonPath('openai==3.57.0');
    await stack.source.hold();
    const before = stack.source.taken.length;
    const script = JSON.stringify({ pieces: ['a', 'b', 'c'], stepMs: 300 });
    const args = [`${stack.gateway.url}/v1`, stack.gateway.key, script];
    const reading = runPython(PROGRAM, { path, args });
    const waiting = queueKey('test-model', SHARED_QUEUE, 'prioritized');
    await eventually('the job to wait', async () => (await stack.source.redis.zcard(waiting)) === 1);
    await new Promise(resolve => setTimeout(resolve, 1_000));
    stack.source.resume();
    expect(JSON.parse(await reading)).toEqual(['a', 'b', 'c']);
    expect(stack.source.taken.length).toBe(before + 1);
  });
});
