/** The whole path with the real model: many streams at once, clients that leave, batchers that die. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { streamChat } from '../../bench/load-client.ts';
import { type ChatReply, Product, textOf, user } from './product.ts';

let product: Product;
beforeAll(async () => {
  product = await Product.start();
});
afterAll(() => product.stop());

const target = () => ({ baseUrl: product.baseUrl, apiKey: product.key });
const story = (index: number) => ({
  model: 'default',
  messages: [user(`Story ${index}: tell of a river and ${index} boats.`)],
  temperature: 0,
  max_tokens: 16,
  ...{ ignore_eos: true },
});

describe('the whole path', () => {
  it('carries 32 streams at once, each to its one end', async () => {
    const outcomes = await Promise.all(Array.from({ length: 32 }, (_, index) => streamChat(target(), { body: story(index) })));
    for (const outcome of outcomes) {
      expect(outcome.faults).toEqual([]);
      expect(outcome.finishReasons).toEqual(['length']);
      expect(outcome.usage?.completionTokens).toBe(16);
      expect(outcome.text).not.toContain('\uFFFD');
    }
    await product.idle();
  });

  it('case 46: frees the row of a client that leaves, streaming or not, running or queued', async () => {
    const long = { ...story(1), max_tokens: 4_000, ignore_eos: true };
    const leave = new AbortController();
    const started = Promise.withResolvers<void>();
    const running = Array.from({ length: 32 }, () =>
      streamChat(target(), { body: long, signal: leave.signal, onChunk: () => started.resolve() }),
    );
    await started.promise;
    // Behind 32 running ones these wait, some in the queue.
    const queued = Array.from({ length: 12 }, () => streamChat(target(), { body: long, signal: leave.signal }));
    const whole = product.post('/chat/completions', long, { signal: leave.signal }).catch(() => 'left');
    await new Promise(resolve => setTimeout(resolve, 500));
    leave.abort();
    const outcomes = await Promise.all([...running, ...queued]);
    expect(outcomes.flatMap(outcome => outcome.faults)).toEqual([]);
    expect(outcomes.every(outcome => outcome.isCut)).toBe(true);
    expect(await whole).toBe('left');
    await product.idle();
    // A job leaves the queue just after its row is free.
    const left = () => product.redis.keys('sluice:{*}:generate:chatcmpl-*');
    const giveUpAt = Date.now() + 30_000;
    while ((await left()).length > 0 && Date.now() < giveUpAt) await new Promise(resolve => setTimeout(resolve, 50));
    expect(await left()).toEqual([]);
    await product.idle();
  });

  it("is found in both logs by its caller's trace, and its text in neither", async () => {
    const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
    const body = { ...story(2), messages: [user('Say mumpsimus.')] };
    const response = await product.post('/chat/completions', body, { headers: { traceparent: `00-${traceId}-00f067aa0ba902b7-01` } });
    expect(response.status).toBe(200);
    const jobId = response.headers.get('x-sluice-stream-id')!;
    const answer = textOf((await response.json()) as ChatReply);
    // Logs are written a moment later.
    const traced = async () => (await product.log()).split('\n').filter(line => line.includes(traceId));
    await expect.poll(async () => (await traced()).length, { timeout: 20_000 }).toBe(3);
    const lines = (await traced()).map(line => JSON.parse(line.slice(line.indexOf('{'))));
    expect(lines.every(line => line.jobId === jobId)).toBe(true);
    expect(lines.find(line => line.event === 'request')).toMatchObject({ status: 200, parentSpanId: '00f067aa0ba902b7' });
    expect(lines.find(line => line.event === 'answer')).toMatchObject({ outcome: 'finished', completionTokens: 16 });
    // The gateway's span is the parent here.
    const parentSpanId = response.headers.get('traceresponse')!.split('-')[2];
    expect(lines.find(line => line.batcher !== undefined)).toMatchObject({ parentSpanId, reason: 'length', completionTokens: 16 });
    const log = await product.log();
    for (const secret of ['mumpsimus', answer.slice(0, 20), product.key]) expect(log).not.toContain(secret);
  });

  it('case 7: goes on in the same stream after the batcher was killed', async () => {
    const body = { ...story(3), seed: 7, max_tokens: 48 };
    const undisturbed = await streamChat(target(), { body });
    expect(undisturbed.faults).toEqual([]);
    let killed = false;
    const outcome = await streamChat(target(), {
      body,
      onChunk: count => {
        if (count < 5 || killed) return;
        killed = true;
        process.kill(product.batcherPid, 'SIGKILL');
      },
    });
    expect(killed).toBe(true);
    expect(outcome.faults).toEqual([]);
    expect(outcome.text).toBe(undisturbed.text);
    expect(outcome.usage?.completionTokens).toBe(48);
  });

  it('keeps what it holds in Redis bounded in time', async () => {
    // As many as there are queues, and queues as there are batchers: what BullMQ keeps of each.
    const ofQueues = /^sluice:(batchers|\{[^}]*\}:(own-queues|[\w-]+:(meta|id|events|stalled-check|marker|stalled|pc)))$/;
    const lasting = async () => {
      const keys = (await product.redis.keys('sluice:*')).filter(key => !ofQueues.test(key));
      const lifetimes = await Promise.all(keys.map(key => product.redis.pttl(key)));
      // -1 is for ever; -2 is a key that has just gone.
      return keys.filter((_, index) => lifetimes[index] === -1);
    };
    // A job leaves the queue just after its client has the last word.
    await product.idle();
    const giveUpAt = Date.now() + 10_000;
    while ((await lasting()).length > 0 && Date.now() < giveUpAt) await new Promise(resolve => setTimeout(resolve, 50));
    expect(await lasting()).toEqual([]);
  });

  it('hits the prefix cache without a change of the answer', async () => {
    const body = { messages: [user(`${'The quick brown fox jumps over the lazy dog. '.repeat(30)}What animal jumps?`)] };
    const cold = await product.chat(body);
    const warm = await product.chat(body);
    expect(textOf(warm)).toBe(textOf(cold));
    // Every prompt begins with the template's own system turn.
    expect(cold.usage.prompt_tokens_details.cached_tokens).toBeLessThan(48);
    expect(warm.usage.prompt_tokens_details.cached_tokens).toBeGreaterThan(250);
  });
});
