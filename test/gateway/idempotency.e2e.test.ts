/** Idempotency: one key, one job, however often, however quickly and at whichever gateway the request is made again. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { idempotencyKey } from '../../shared/keys.ts';
import { startGateway } from '../gateway-server.ts';
import { readPart } from './resumer.ts';
import { chunksOf, readSse, textOf } from './sse-client.ts';
import { type ErrorReply, eventually, type Stack, scripted, startStack } from './stack.ts';
import type { Script } from './token-source.ts';

let stack: Stack;
beforeAll(async () => {
  stack = await startStack({
    bindings: {
      SLUICE_HEARTBEAT_MS: '100',
      SLUICE_RESUME_GRACE_MS: '1500',
      SLUICE_KEY_SECRET: 'x'.repeat(32),
    },
  });
});
afterAll(() => stack.stop());

const pieces = ['one ', 'two ', 'three'];
let count = 0;
const fresh = () => `key-${count++}`;
const ask = (key: string, script: Script, more: Record<string, unknown> = {}, headers: Record<string, string> = {}) =>
  stack.post(scripted(script, more), { headers: { 'idempotency-key': key, ...headers } });
const idOf = (response: Response) => response.headers.get('x-sluice-stream-id');
const errorOf = async (response: Response) => ((await response.json()) as ErrorReply).error;

describe('the same request again', () => {
  test.each([true, false])('after the end: the same answer, of the same job; stream %s', async stream => {
    const key = fresh();
    const first = await ask(key, { pieces }, { stream });
    const answer = await first.text();
    const taken = stack.source.taken.length;
    const second = await ask(key, { pieces }, { stream });
    expect(await second.text()).toBe(answer.replace(/^: .*\n/gm, ''));
    expect(idOf(second)).toBe(idOf(first));
    expect(first.headers.get('x-sluice-idempotent-replay')).toBeNull();
    expect(second.headers.get('x-sluice-idempotent-replay')).toBe('true');
    expect(stack.source.taken.length).toBe(taken);
  });

  test('while it runs: attached to its stream, from the beginning', async () => {
    const key = fresh();
    const first = await ask(key, { pieces, stepMs: 100, repeat: 3 }, { stream: true });
    const part = await readPart(first, stream => stream.events.length >= 3);
    const second = await ask(key, { pieces, stepMs: 100, repeat: 3 }, { stream: true });
    expect(idOf(second)).toBe(part.id);
    expect(textOf(chunksOf(await readSse(second)))).toBe('one two three'.repeat(3));
  });

  test('twenty at once: one job', async () => {
    const key = fresh();
    const before = stack.source.taken.length;
    const replies = await Promise.all(Array.from({ length: 20 }, () => ask(key, { pieces, stepMs: 20 })));
    const bodies = await Promise.all(replies.map(reply => reply.text()));
    expect(replies.map(reply => reply.status)).toEqual(replies.map(() => 200));
    expect(new Set(bodies.map(body => body.trim())).size).toBe(1);
    expect(stack.source.taken.length).toBe(before + 1);
  });

  test('at two gateways at once: one job', async () => {
    const other = await startGateway({
      redisUrl: stack.redis.url,
      bindings: { SLUICE_ACCESS_LOG: 'off', SLUICE_INSTANCE: 'other', SLUICE_DEV_KEY: stack.gateway.key },
    });
    try {
      const before = stack.source.taken.length;
      const keys = Array.from({ length: 10 }, fresh);
      const texts = await Promise.all(
        keys.flatMap(key =>
          [stack.gateway.url, other.url].map(async url => {
            const response = await fetch(`${url}/v1/chat/completions`, {
              method: 'POST',
              headers: { authorization: `Bearer ${stack.gateway.key}`, 'idempotency-key': key },
              body: JSON.stringify(scripted({ pieces, stepMs: 30 }, { stream: true })),
            });
            return `${key} ${idOf(response)} ${textOf(chunksOf(await readSse(response)))}`;
          }),
        ),
      );
      expect(new Set(texts).size).toBe(keys.length);
      expect(stack.source.taken.length).toBe(before + keys.length);
    } finally {
      await other.stop();
    }
  });

  test('after the connection broke: the answer waits for who asks again', async () => {
    const key = fresh();
    const before = stack.source.taken.length;
    const leaver = new AbortController();
    const first = stack.post(scripted({ pieces, stepMs: 200 }), { headers: { 'idempotency-key': key }, signal: leaver.signal });
    await eventually('the job to run', () => stack.source.taken.length === before + 1);
    leaver.abort();
    await expect(first).rejects.toThrow();
    const second = await ask(key, { pieces, stepMs: 200 });
    expect(((await second.json()) as { choices: { message: { content: string } }[] }).choices[0]!.message.content).toBe('one two three');
    expect(stack.source.taken.length).toBe(before + 1);
  });

  test('after the client was given up, and after an error: it is tried anew', async () => {
    const key = fresh();
    const left = await readPart(
      await ask(key, { pieces: ['x'], repeat: 2_000, stepMs: 20 }, { stream: true }),
      stream => stream.events.length > 2,
    );
    await eventually('the job to be cancelled', () => stack.source.cancelled.includes(left.id));
    await eventually('another job', async () => {
      const again = await ask(key, { pieces: ['x'], repeat: 2_000, stepMs: 20 }, { stream: true });
      await again.body!.cancel();
      return idOf(again) !== left.id && idOf(again) !== null;
    });

    const failing = fresh();
    const script = { pieces, error: { code: 'generation_failed', message: 'It broke.', at: 0 } };
    expect((await ask(failing, script)).status).toBe(500);
    const taken = stack.source.taken.length;
    await eventually('another try', async () => {
      expect((await ask(failing, script)).status).toBe(500);
      return stack.source.taken.length > taken;
    });
  });
});

describe('what is not the same', () => {
  test('another body under the same key: 409, also while the first is being made', async () => {
    const key = fresh();
    const [first, second] = await Promise.all([ask(key, { pieces }), ask(key, { pieces: ['other'] })]);
    expect([first.status, second.status].sort()).toEqual([200, 409]);
    expect(await errorOf(first.status === 409 ? first : second)).toMatchObject({
      code: 'idempotency_conflict',
      type: 'invalid_request_error',
      param: 'idempotency-key',
    });
    expect((await ask(key, { pieces }, { stream: true })).status).toBe(409);
  });

  test('white space in the body does not matter', async () => {
    const key = fresh();
    const body = scripted({ pieces });
    const send = (text: string) => stack.post(text, { headers: { 'idempotency-key': key } });
    expect(idOf(await send(JSON.stringify(body)))).toBe(idOf(await send(JSON.stringify(body, null, 2))));
  });

  test('the same key of another tenant, or another key', async () => {
    const key = fresh();
    const reply = await fetch(`${stack.gateway.url}/admin/keys`, {
      method: 'POST',
      headers: { authorization: `Bearer ${stack.gateway.key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ tenant: 'stranger' }),
    });
    const { key: strangersKey } = (await reply.json()) as { key: string };
    const ids = await Promise.all([
      ask(key, { pieces }),
      ask(key, { pieces }, {}, { authorization: `Bearer ${strangersKey}` }),
      ask(fresh(), { pieces }),
    ]);
    expect(new Set(ids.map(idOf)).size).toBe(3);
  });

  test.each(['', 'a b', 'x'.repeat(256), 'ключ'.normalize()])('a key of a bad form is refused: %j', async key => {
    const reply = await ask(encodeURI(key) === key || key.includes(' ') ? key : '\u00e9', { pieces });
    expect(reply.status).toBe(400);
    expect((await errorOf(reply)).param).toBe('idempotency-key');
  });
});

describe('when Redis fails in between', () => {
  test('a key that was taken by a request that never reached the queue', async () => {
    const key = fresh();
    const first = await ask(key, { pieces });
    const body = await first.text();
    // As a broker leaves it that dies between its first and its second word to Redis.
    const { redis } = stack.source;
    const claims = await redis.keys(idempotencyKey('*'));
    let claim: string | undefined;
    for (const name of claims) if ((await redis.get(name))?.includes(idOf(first)!)) claim = name;
    const lost = `chatcmpl-${'0'.repeat(32)}`;
    await redis.set(claim!, (await redis.get(claim!))!.replace(idOf(first)!, lost));
    const before = stack.source.taken.length;
    const replies = await Promise.all([1, 2, 3].map(() => ask(key, { pieces })));
    const bodies = await Promise.all(replies.map(async reply => (await reply.text()).trim()));
    expect(new Set(bodies).size).toBe(1);
    expect(JSON.parse(bodies[0]!)).toEqual({ ...JSON.parse(body), id: idOf(replies[0]!), created: expect.any(Number) });
    expect(stack.source.taken.length).toBe(before + 1);
  });

  test('connections cut at any moment, clients that try again: each key is answered by one job', async () => {
    const before = stack.source.taken.length;
    let isOver = false;
    const cutting = (async () => {
      while (!isOver) {
        await stack.cutConnections();
        await new Promise(resolve => setTimeout(resolve, 200));
      }
    })();
    const answers = await Promise.all(
      Array.from({ length: 40 }, async (_, index) => {
        const key = fresh();
        await new Promise(resolve => setTimeout(resolve, index * 40));
        for (;;) {
          const reply = await ask(key, { pieces: [`${index} `, ...pieces], stepMs: 5 });
          if (reply.status === 200) return (await reply.json()) as { id: string; choices: { message: { content: string } }[] };
          expect(reply.status).toBe(503);
        }
      }),
    ).finally(() => {
      isOver = true;
    });
    await cutting;
    expect(answers.map(answer => answer.choices[0]!.message.content)).toEqual(answers.map((_, index) => `${index} one two three`));
    const taken = stack.source.taken.slice(before);
    expect(new Set(taken).size).toBe(taken.length);
    const answered = new Set(answers.map(answer => answer.id));
    expect(answered.size).toBe(answers.length);
    // One that came onto the queue after it had been given up is at most begun.
    await eventually('the rest to be cancelled', () => taken.every(id => answered.has(id) || stack.source.cancelled.includes(id)));
  });

  test('503 meanwhile, and one job in the end', async () => {
    const key = fresh();
    const before = stack.source.taken.length;
    await stack.redis.halt();
    const refused = await ask(key, { pieces });
    expect(refused.status).toBe(503);
    await stack.redis.resume();
    const ids: string[] = [];
    await eventually('an answer', async () => {
      const reply = await ask(key, { pieces });
      // A status may come before its answer, and before the job is taken.
      if (reply.status === 200) ids.push(((await reply.json()) as { id: string }).id);
      return ids.length === 1;
    });
    expect(stack.source.taken.length).toBe(before + 1);
    const again = await ask(key, { pieces });
    expect(again.status).toBe(200);
    expect(((await again.json()) as { id: string }).id).toBe(ids[0]);
    expect(stack.source.taken.length).toBe(before + 1);
  });
});
