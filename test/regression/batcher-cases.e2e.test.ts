/** Public faults around the life of a batcher, tried on two of them with the real model; numbers as in docs/cases.md. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { streamChat } from '../../bench/load-client.ts';
import { generationKey } from '../../shared/keys.ts';
import { Product, textOf, user } from '../e2e/product.ts';

let product: Product;
beforeAll(async () => {
  product = await Product.start({
    batcherCount: 2,
    batcherArguments: ['--max-running', '2', '--drain-timeout-ms', '500'],
    bindings: { SLUICE_KEY_SECRET: 'a-secret-of-thirty-two-letters-or-more-for-tests' },
  });
});
afterAll(() => product.stop());

const target = (apiKey = product.key) => ({ baseUrl: product.baseUrl, apiKey });
const story = (topic: string, maxTokens: number) => ({
  ...{ model: 'default', messages: [user(`Tell of ${topic}.`)], max_tokens: maxTokens },
  ...{ temperature: 0.8, seed: 3, ignore_eos: true },
});
const pause = (ms = 20) => new Promise(resolve => setTimeout(resolve, ms));

describe('case 43: a batcher that is frozen past its lock and then goes on', () => {
  it('its late tokens are fenced off: one answer, charged once', async () => {
    const key = await product.makeKey('frozen');
    const body = story('the sea', 120);
    const undisturbed = await streamChat(target(key), { body });
    let isOver = false;
    let jobId: string | undefined;
    const holders = new Set<number>();
    const freeze = async () => {
      const [held] = await product.holders();
      if (held === undefined) return;
      const [id, pid] = held;
      jobId = id;
      process.kill(pid, 'SIGSTOP');
      try {
        // Until another one has it and is in the middle of it.
        while (!isOver && holders.size < 2) {
          const holder = (await product.holders()).get(id);
          if (holder !== undefined) holders.add(holder);
          await pause();
        }
      } finally {
        process.kill(pid, 'SIGCONT');
      }
    };
    let freezing: Promise<void> | undefined;
    const outcome = await streamChat(target(key), {
      body,
      onChunk: count => {
        if (count >= 5) freezing ??= freeze();
      },
    });
    isOver = true;
    await freezing;
    expect(holders.size).toBe(2);
    expect(outcome.faults).toEqual([]);
    expect(outcome.text).toBe(undisturbed.text);
    expect(outcome.finishReasons).toEqual(['length']);
    expect(outcome.usage).toEqual({ ...undisturbed.usage, cachedTokens: outcome.usage?.cachedTokens });
    await product.idle();
    await expect.poll(async () => (await product.usage('frozen')).requests, { timeout: 20_000 }).toBe(2);
    expect(await product.usage('frozen')).toMatchObject({ completionTokens: 240, promptTokens: 2 * undisturbed.usage!.promptTokens });
    // The record has each token once, and exactly one end.
    const events = (await product.redis.xrange(generationKey(jobId!), '-', '+')).map(([, fields]) => JSON.parse(fields[1]!));
    expect(events.flatMap(event => event.tokenIds ?? [])).toHaveLength(120);
    expect(events.filter(event => event.type === 'finish' || event.type === 'error')).toHaveLength(1);
  });
});

describe('case 49: batchers that are told to end', () => {
  const TOPICS = ['a mill', 'a lake', 'a tower', 'a garden', 'a ship'];

  it('one of two: what runs and what waits is answered as if nothing had been', async () => {
    const undisturbed = await Promise.all(TOPICS.map(topic => streamChat(target(), { body: story(topic, 48) })));
    // Four rows: one of the five waits.
    const begun = new Set<string>();
    let ending: Promise<void> | undefined;
    const outcomes = await Promise.all(
      TOPICS.map(topic =>
        streamChat(target(), {
          body: story(topic, 48),
          onChunk: () => {
            begun.add(topic);
            if (begun.size >= 3) ending ??= product.drain(product.batcherPids[0]!);
          },
        }),
      ),
    );
    expect(outcomes.flatMap(outcome => outcome.faults)).toEqual([]);
    expect(outcomes.map(outcome => outcome.text)).toEqual(undisturbed.map(outcome => outcome.text));
    await ending;
    expect(product.batcherPids).toHaveLength(1);
  });

  it('the last one: its stream waits for the next, and new calls are told that nobody serves', async () => {
    const undisturbed = await streamChat(target(), { body: story('a bridge', 100) });
    let ending: Promise<void> | undefined;
    const running = streamChat(target(), {
      body: story('a bridge', 100),
      onChunk: count => {
        if (count >= 3) ending ??= product.drain(product.batcherPids[0]!);
      },
    });
    while (ending === undefined) await pause();
    await ending;
    expect(product.batcherPids).toEqual([]);
    const refused = await product.post('/chat/completions', story('a town', 2));
    expect(refused.status).toBe(503);
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(await refused.json()).toMatchObject({ error: { code: 'no_batcher', param: null } });
    product.restartDrained();
    const outcome = await running;
    expect(outcome.faults).toEqual([]);
    expect(outcome.text).toBe(undisturbed.text);
  });
});

describe('case 61: bursts while a batcher is restarted again and again', () => {
  it('each request is answered once, and none is left behind', async () => {
    const key = await product.makeKey('burst');
    const asks = Array.from({ length: 20 }, (_, index) => ({ messages: [user(`What is ${index} and one?`)], seed: index, max_tokens: 3 }));
    const ask = () => Promise.all(asks.map(async body => textOf(await product.chat(body, key))));
    while ((await product.post('/chat/completions', story('a town', 1))).status !== 200) await pause();
    const undisturbed = await ask();
    for (let round = 0; round < 3; round++) {
      const burst = ask();
      await product.drain(product.batcherPids[round % product.batcherPids.length]!);
      product.restartDrained();
      expect(await burst).toEqual(undisturbed);
    }
    await product.idle();
    await expect.poll(async () => (await product.usage('burst')).requests, { timeout: 20_000 }).toBe(80);
    expect(await product.redis.keys('sluice:{*}:*:chatcmpl-*')).toEqual([]);
  });
});
