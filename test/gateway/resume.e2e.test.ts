/** Resume: a stream that is read in pieces, over connections that break, says what it would have said in one; and only to its owner. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { openJobsKey } from '../../shared/keys.ts';
import { type GatewayServer, startGateway } from '../gateway-server.ts';
import { joinParts, readPart, resume, streamUrl } from './resumer.ts';
import { chunksOf, readSse, textOf } from './sse-client.ts';
import { type ErrorReply, eventually, type Stack, scripted, startStack } from './stack.ts';
import type { Script } from './token-source.ts';

const GRACE_MS = 3_000;

let stack: Stack;
let gateway: GatewayServer;
beforeAll(async () => {
  stack = await startStack({
    bindings: {
      SLUICE_HEARTBEAT_MS: '100',
      SLUICE_RESUME_GRACE_MS: String(GRACE_MS),
      SLUICE_KEY_SECRET: 'x'.repeat(32),
    },
  });
  gateway = stack.gateway;
});
afterAll(() => stack.stop());
afterEach(() => stack.source.resume());

const resumable = { headers: { 'x-sluice-resumable': 'true' } };
const pieces = ['Paris ', 'is ', '漢', '😀é', ' nice', '.'];
const whole = pieces.join('');
const endless = { pieces: ['on ', 'and '], repeat: 2_500, stepMs: 20 };

const open = (script: Script, more: Record<string, unknown> = {}, init: RequestInit = resumable) =>
  stack.post(scripted(script, { stream: true, ...more }), init);
const queued = () => stack.source.redis.zcard('sluice:{test-model}:generate:prioritized');
const codeOf = async (response: Response) => ((await response.json()) as ErrorReply).error.code;

describe('reading on', () => {
  test('the id is the completion’s, and a stream that is over can be read again, the same to the byte', async () => {
    const response = await open({ pieces }, { stream_options: { include_usage: true } }, {});
    const first = await readSse(response);
    const id = response.headers.get('x-sluice-stream-id')!;
    expect(chunksOf(first)[0]!.id).toBe(id);
    const again = await resume(gateway, id, undefined);
    expect(again.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    expect((await readPart(again)).stream.events).toEqual(first.events);
  });

  test.each([{ n: 1 }, { n: 3 }, { n: 1, logprobs: true, stream_options: { include_usage: true } }])(
    'left after every event in turn, and taken up again: %j',
    async more => {
      const script = { pieces, stepMs: 5 };
      const undisturbed = await readSse(await open(script, more, {}));
      const ids = [...new Set(undisturbed.events.map(event => event.id))].filter(id => id !== undefined);
      expect(ids.length).toBeGreaterThan(3);
      for (const id of ids.slice(0, -1)) {
        const first = await readPart(await open(script, more), stream => stream.events.some(event => event.id === id));
        const reply = await resume(gateway, first.id, first.lastId);
        const { datas } = joinParts(reply.status === 204 ? [first] : [first, await readPart(reply)]);
        const plain = (data: string) => data.replace(/"id":"[^"]*","object":"([^"]*)","created":\d+/, '$1');
        expect(datas.map(plain)).toEqual(undisturbed.events.map(event => plain(event.data)));
      }
    },
  );

  test('left and taken up many times while it runs; the URL says where as well as the header, which is newer', async () => {
    const parts = [await readPart(await open({ pieces, repeat: 5, stepMs: 20 }), stream => stream.events.length >= 3)];
    for (let count = 3; !parts.at(-1)!.stream.events.some(event => event.data === '[DONE]'); count++) {
      const { id, lastId } = parts.findLast(part => part.lastId !== undefined)!;
      const url = streamUrl(gateway, id, `?after=${count % 2 === 0 ? 0 : lastId}`);
      const headers = { authorization: `Bearer ${gateway.key}`, ...(count % 2 === 0 && { 'last-event-id': lastId! }) };
      parts.push(await readPart(await fetch(url, { headers }), stream => stream.events.length >= count % 4));
      expect(parts.length).toBeLessThan(100);
    }
    expect(joinParts(parts).text).toBe(whole.repeat(5));
  });

  test('while it waits: the place in the queue, and nothing is lost', async () => {
    await stack.source.hold();
    const first = await readPart(await open({ pieces }), stream => stream.text !== undefined);
    const back = await resume(gateway, first.id, undefined);
    const reader = back.body!.getReader();
    let text = '';
    while (!text.includes('queued position=1')) text += Buffer.from((await reader.read()).value!).toString();
    stack.source.resume();
    for (let next = await reader.read(); !next.done; next = await reader.read()) text += Buffer.from(next.value).toString();
    expect(text).toMatch(/^retry: \d+\n: resumed\n/);
    expect(text).toContain('data: [DONE]');
  });

  test('two readers at once get the same', async () => {
    const response = await open({ pieces, repeat: 3, stepMs: 15 });
    const id = response.headers.get('x-sluice-stream-id')!;
    const [one, two, three] = await Promise.all([
      readPart(response),
      resume(gateway, id, undefined).then(reply => readPart(reply)),
      resume(gateway, id, undefined).then(reply => readPart(reply)),
    ]);
    expect(joinParts([one]).text).toBe(whole.repeat(3));
    expect(two.stream.events).toEqual(one.stream.events);
    expect(three.stream.events).toEqual(one.stream.events);
  });

  test('who has seen everything is told so by 204', async () => {
    const { id, lastId } = await readPart(await open({ pieces }));
    const reply = await resume(gateway, id, lastId);
    expect(reply.status).toBe(204);
    expect(await reply.text()).toBe('');
  });

  test('a reply that was not a stream is given again whole', async () => {
    const response = await stack.post(scripted({ pieces }, { n: 2 }));
    const reply = await response.json();
    const again = await resume(gateway, response.headers.get('x-sluice-stream-id')!, undefined);
    expect(again.headers.get('content-type')).toBe('application/json');
    expect(await again.json()).toEqual(reply);
  });

  test('an answer whose last events never came is found in the record', async () => {
    // The terminal event has sequence number 7: neither it nor anything after it is heard.
    const stream = await readSse(await open({ pieces, missing: [6, 7] }, {}, {}));
    expect(textOf(chunksOf(stream))).toBe(whole);
  });

  test('an error in the middle comes again, with an id, and then no more', async () => {
    const script = { pieces, stepMs: 200, error: { code: 'generation_failed', message: 'It broke.', at: 3 } };
    const first = await readPart(await open(script), stream => stream.events.length >= 2);
    const second = await readPart(await resume(gateway, first.id, first.lastId));
    expect(JSON.parse(second.stream.events.at(-1)!.data).error.message).toBe('It broke.');
    expect((await resume(gateway, first.id, second.lastId)).status).toBe(204);
  });
});

describe('who may', () => {
  let stranger: string;
  beforeAll(async () => {
    const reply = await fetch(`${gateway.url}/admin/keys`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ tenant: 'stranger' }),
    });
    stranger = ((await reply.json()) as { key: string }).key;
  });

  test.each(['over', 'running'])('to another tenant a stream that is %s is like one that never was', async state => {
    const response = await open(state === 'over' ? { pieces } : endless);
    const { id } = await readPart(response, stream => state === 'running' && stream.events.length > 2);
    for (const method of ['GET', 'DELETE']) {
      const ask = (name: string) => fetch(streamUrl(gateway, name), { method, headers: { authorization: `Bearer ${stranger}` } });
      const [foreign, unknown] = await Promise.all([ask(id), ask(`${id.slice(0, -1)}z`)]);
      expect(foreign.status).toBe(404);
      expect(unknown.status).toBe(404);
      expect(await foreign.text()).toBe(await unknown.text());
    }
    expect((await resume(gateway, id, undefined)).status).toBe(200);
    await resume(gateway, id, undefined, { method: 'DELETE' });
  });

  test('without a key: only with the stream’s own token, and only to read', async () => {
    const { id, token } = await readPart(await open({ pieces }));
    const other = await readPart(await open({ pieces }));
    const ask = (query: string, init?: RequestInit) => fetch(streamUrl(gateway, id, query), init);
    expect((await ask('')).status).toBe(401);
    const reply = await ask(`?token=${token}`);
    expect(reply.headers.get('access-control-allow-origin')).toBe('*');
    expect(joinParts([await readPart(reply)]).text).toBe(whole);
    for (const wrong of [other.token, '', 'x', `${token}x`, `stranger.${token.split('.')[1]}`, 'y'.repeat(5_000)]) {
      expect((await ask(`?token=${wrong}`)).status, wrong.slice(0, 40)).toBe(404);
    }
    expect((await ask(`?token=${token}`, { method: 'DELETE' })).status).toBe(401);
  });

  test.each(['-1', '1.5', 'abc', '99999999999', '1 OR 1'])('an id of no event, %s, is refused', async lastId => {
    const { id } = await readPart(await open({ pieces }));
    const reply = await resume(gateway, id, lastId);
    expect(reply.status).toBe(400);
    expect(((await reply.json()) as ErrorReply).error.param).toBe('last-event-id');
    expect((await fetch(streamUrl(gateway, id, `?after=${lastId}`), { headers: { authorization: `Bearer ${gateway.key}` } })).status).toBe(
      400,
    );
  });

  test.each(['x', 'a'.repeat(129), 'a%00b', '..%2f..', 'chatcmpl-%F0%9F%98%80'])('no stream has the name %s', async name => {
    expect((await resume(gateway, name, undefined)).status).toBe(404);
  });

  test('a header that says neither true nor false', async () => {
    const reply = await open({ pieces }, {}, { headers: { 'x-sluice-resumable': 'maybe' } });
    expect(reply.status).toBe(400);
    expect(((await reply.json()) as ErrorReply).error.param).toBe('x-sluice-resumable');
  });
});

describe('ending', () => {
  test('DELETE ends a running stream, tells its readers, and frees the row', async () => {
    const response = await open(endless, {}, {});
    const id = response.headers.get('x-sluice-stream-id')!;
    const reading = readPart(response);
    await eventually('the job to run', () => stack.source.taken.includes(id));
    const reply = await resume(gateway, id, undefined, { method: 'DELETE' });
    expect(await reply.json()).toEqual({ id, object: 'stream', status: 'cancelled' });
    const { stream } = await reading;
    expect(JSON.parse(stream.events.at(-1)!.data).error.code).toBe('request_cancelled');
    await eventually('the job to be cancelled', () => stack.source.cancelled.includes(id));
    await eventually('the end to be recorded', async () => {
      const again = await resume(gateway, id, undefined, { method: 'DELETE' });
      return ((await again.json()) as { status: string }).status === 'finished';
    });
  });

  test('DELETE takes a waiting job off the queue, and its record ends', async () => {
    await stack.source.hold();
    const response = await open({ pieces });
    const id = response.headers.get('x-sluice-stream-id')!;
    await eventually('the job to be queued', async () => (await queued()) === 1);
    expect((await resume(gateway, id, undefined, { method: 'DELETE' })).status).toBe(200);
    expect(await queued()).toBe(0);
    expect(await readPart(response).then(part => JSON.parse(part.stream.events.at(-1)!.data).error.code)).toBe('request_cancelled');
    await eventually('the record to end', async () => (await codeOf(await resume(gateway, id, undefined))) === 'request_cancelled');
  });

  test('a client that leaves ends its job at once, unless it said that it comes back', async () => {
    const leaving = await readPart(await open(endless, {}, {}), stream => stream.events.length > 2);
    const staying = await readPart(await open(endless), stream => stream.events.length > 2);
    await eventually('the one to be cancelled', () => stack.source.cancelled.includes(leaving.id));
    expect(stack.source.cancelled).not.toContain(staying.id);
    const { stream } = await readPart(await resume(gateway, leaving.id, leaving.lastId));
    expect(JSON.parse(stream.events.at(-1)!.data).error.code).toBe('request_cancelled');
    // It does not come back either.
    await eventually('the other to be cancelled', () => stack.source.cancelled.includes(staying.id));
  });

  test('a waiting job whose client does not come back leaves the queue', async () => {
    await stack.source.hold();
    await readPart(await open({ pieces }), () => true);
    await eventually('the job to be queued', async () => (await queued()) === 1);
    await eventually('the job to be removed', async () => (await queued()) === 0);
  });

  test('nothing of what is over is left among the open jobs', async () => {
    await eventually('no open job', async () => (await stack.source.redis.hlen(openJobsKey('main-0'))) === 0);
  });
});

test('another gateway on the same Redis takes up a stream, and the first one leaves it alone', async () => {
  const other = await startGateway({
    redisUrl: stack.redis.url,
    bindings: { SLUICE_ACCESS_LOG: 'off', SLUICE_INSTANCE: 'other', SLUICE_RESUME_GRACE_MS: String(GRACE_MS), SLUICE_DEV_KEY: gateway.key },
  });
  try {
    // Longer than the grace time, so that the first gateway asks itself whether somebody is there.
    const script = { pieces: ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j'], stepMs: (2.5 * GRACE_MS) / 10 };
    const first = await readPart(await open(script), stream => stream.events.length >= 2);
    const second = await readPart(await resume({ ...other, key: gateway.key }, first.id, first.lastId));
    expect(joinParts([first, second]).text).toBe('abcdefghij');
    expect(stack.source.cancelled).not.toContain(first.id);
  } finally {
    await other.stop();
  }
});

async function openStreamCount(): Promise<number> {
  const response = await fetch(`${gateway.url}/metrics`, { headers: { authorization: `Bearer ${gateway.key}` } });
  const [, count] = /^sluice_gateway_open_streams\{.*\} (\d+)$/m.exec(await response.text()) ?? [];
  return Number(count);
}

test('EventSource comes back by itself, with nothing lost, over a gateway that dies, and stops at the end', async () => {
  const { id, token } = await readPart(await open({ pieces, repeat: 40, stepMs: 50 }), stream => stream.events.length > 1);
  await eventually('the first client to be gone', async () => (await openStreamCount()) === 0);
  const reading = promisify(execFile)(process.execPath, [
    '--experimental-eventsource',
    '-e',
    EVENT_SOURCE,
    streamUrl(gateway, id, `?token=${token}`),
  ]);
  // A loaded machine takes its time to start a program.
  await eventually('the reader to be there', async () => (await openStreamCount()) > 0);
  await gateway.kill();
  await gateway.revive();
  const seen = JSON.parse((await reading).stdout) as { text: string; opens: number; states: number[] };
  expect(seen.text).toBe(whole.repeat(40));
  expect(seen.opens).toBeGreaterThan(1);
}, 60_000);

const EVENT_SOURCE = `
  const source = new EventSource(process.argv[1]);
  let text = '', opens = 0;
  source.onopen = () => opens++;
  source.onmessage = ({ data }) => {
    if (data !== '[DONE]') return void (text += JSON.parse(data).choices[0].delta.content ?? '');
    source.close();
    console.log(JSON.stringify({ text, opens }));
    process.exit(0);
  };
  setTimeout(() => { console.log(JSON.stringify({ text, opens })); process.exit(1); }, 40000);
`;
