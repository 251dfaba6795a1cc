/** What the gateway makes of things in Redis that neither it nor a batcher has written: nothing, or an error in words for the one request that they are of. */
import { createHash } from 'node:crypto';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { generationKey, idempotencyKey, outKey, replyKey } from '../../shared/keys.ts';
import { readPart } from './resumer.ts';
import { type ErrorReply, type Stack, scripted, startStack } from './stack.ts';

let stack: Stack;
beforeAll(async () => {
  stack = await startStack({ bindings: { SLUICE_HEARTBEAT_MS: '100' } });
});
afterAll(() => stack.stop());

const pieces = ['one ', 'two ', 'three'];
const WHOLE = /"one ".*"two ".*"three".*\[DONE\]/s;
const resume = (id: string) =>
  fetch(`${stack.gateway.url}/v1/streams/${id}`, { headers: { authorization: `Bearer ${stack.gateway.key}` } });

describe('an idempotency key', () => {
  test.each([['null'], ['{'], ['7'], ['{"id":7}'], ['[]'], ['{"id":"a","shard":"b"}']])('that holds %s is nobody’s', async text => {
    const key = `key-${text.length}-${text.charCodeAt(0)}`;
    const digest = createHash('sha256').update(`dev\n${key}`).digest('hex');
    await stack.source.redis.set(idempotencyKey(digest), text, 'PX', 60_000);
    const ask = () => stack.post(scripted({ pieces }), { headers: { 'idempotency-key': key } });
    const first = await ask();
    expect(first.status, await first.clone().text()).toBe(200);
    const again = await ask();
    expect(again.headers.get('x-sluice-idempotent-replay')).toBe('true');
    expect((await again.text()).trim()).toBe((await first.text()).trim());
  });
});

describe('a reply record', () => {
  const finished = async () => {
    const response = await stack.post(scripted({ pieces }, { stream: true }));
    await response.text();
    return response.headers.get('x-sluice-stream-id')!;
  };

  test('of another job, of another tenant or with absurd counts is none', async () => {
    const id = await finished();
    const other = await finished();
    const { redis } = stack.source;
    const record = JSON.parse((await redis.get(replyKey(id, 'dev')))!) as Record<string, unknown>;
    for (const change of [
      { id: other },
      { tenant: 'acme' },
      { choiceCount: 1e9 },
      { promptCount: -1 },
      { reply: { kind: 'completion', isStreamed: true } },
    ]) {
      await redis.set(replyKey(id, 'dev'), JSON.stringify({ ...record, ...change }), 'PX', 60_000);
      const response = await resume(id);
      expect(response.status, JSON.stringify(change)).toBe(404);
      expect(((await response.json()) as ErrorReply).error.code).toBe('not_found');
    }
    await redis.set(replyKey(id, 'dev'), JSON.stringify(record), 'PX', 60_000);
    expect(await (await resume(id)).text()).toMatch(WHOLE);
  });
});

describe('a record of events', () => {
  test.each([
    ['is no JSON', '{'],
    ['lacks a field', '{"type":"delta","id":"x","attempt":2,"seq":2}'],
    ['has another type in a field', '{"type":"delta","id":"x","attempt":2,"seq":2,"choice":0,"tokenIds":[],"text":7}'],
  ])('an event of which %s ends the answer there, with an error', async (_, text) => {
    const response = await stack.post(scripted({ pieces }, { stream: true }));
    await response.text();
    const id = response.headers.get('x-sluice-stream-id')!;
    const { redis } = stack.source;
    const entries = await redis.xrange(generationKey(id), '-', '+');
    await redis.del(generationKey(id));
    for (const [entryId, fields] of entries) await redis.xadd(generationKey(id), entryId, 'e', entryId === '3-0' ? text : fields[1]!);
    const again = await (await resume(id)).text();
    expect(again).toContain('one ');
    expect(again).not.toContain('three');
    expect(again).toMatch(/"code":"generation_failed"}}\n\n$/);
  });

  test('what cannot be read where brokers listen harms nobody who is in the same entry, or comes after', async () => {
    const response = await stack.post(scripted({ pieces, stepMs: 150 }, { stream: true }), { headers: { 'x-sluice-resumable': 'true' } });
    const { redis, jobs } = stack.source;
    const part = await readPart(response, stream => stream.events.length >= 1);
    const { shard } = jobs.get(part.id)!;
    for (const text of ['', '{', 'null', '[null]', `[{"type":"delta","id":"${part.id}","attempt":2,"seq":2,"choice":0}]`])
      await redis.xadd(outKey(shard), '*', 'e', text);
    await redis.xadd(outKey(shard), '*', 'x', 'y');
    const whole = await stack.post(scripted({ pieces: ['a ', 'b'] }));
    expect(((await whole.json()) as { choices: { message: { content: string } }[] }).choices[0]!.message.content).toBe('a b');
    expect(await (await resume(part.id)).text()).toMatch(WHOLE);
  });
});

test('a body whose chunks are none is the client’s fault, and no fault of ours is logged', async () => {
  const { port, key } = stack.gateway;
  const reply = await new Promise<string>((resolve, reject) => {
    let text = '';
    const socket = connect(port, '127.0.0.1');
    socket
      .on('data', data => (text += String(data)))
      .on('close', () => resolve(text))
      .on('error', reject);
    const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer ${key}\r\n`;
    socket.end(`${head}transfer-encoding: chunked\r\nconnection: close\r\n\r\n{"model":"default"}`);
  });
  expect(reply).toMatch(/^HTTP\/1\.1 400 /);
  expect(reply).toContain('"code":"invalid_json"');
  expect(stack.gateway.output()).not.toContain('"event":"fault"');
});

test('control characters of a request do not come back in the words of an error', async () => {
  const response = await stack.post({ ...scripted({ pieces }), model: 'x\u001b[31m\u0007' });
  const { error } = (await response.json()) as ErrorReply;
  expect(error.message).toBe("The model 'x\ufffd[31m\ufffd' does not exist.");
});
