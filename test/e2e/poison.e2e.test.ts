/** Requests and circumstances that kill: the one request fails alone, the batchers come back, and everyone else has the answer that he would have had. */
import { execFileSync } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, describe, expect, it } from 'vitest';
import { streamChat } from '../../bench/load-client.ts';
import { parseCard } from '../../shared/batcher-card.ts';
import { BATCHER_CARDS, generationKey } from '../../shared/keys.ts';
import { Product, textOf, user } from './product.ts';

const HOUR_MS = 3_600_000;
const GIVEN_UP = 'Batchers ended 4 times while they worked on this request; it is not tried again.';

let product: Product | undefined;
afterEach(async () => {
  await product?.stop();
  product = undefined;
});

describe('a request over which its batcher dies each time', () => {
  it('fails with words that say so, and the pool goes on', async () => {
    const { redis, target, chat } = await start(2);
    const ask = { messages: [user('Tell of a mill.')], seed: 5, temperature: 0.8, max_tokens: 40, ignore_eos: true };
    const undisturbed = textOf(await chat(ask));
    const [known] = Object.values(await redis.hgetall(BATCHER_CARDS)).flatMap(json => parseCard(json) ?? []);

    // Killed by us as soon as somebody has it: nothing of the product is made to fail.
    const poison = { model: 'default', stream: true, messages: [user(`Poison. ${'More and more of it. '.repeat(300)}`)], max_tokens: 8 };
    const response = await product!.post('/chat/completions', poison, { headers: {} });
    const job = `sluice:{${known!.model}}:*:${response.headers.get('x-sluice-stream-id')}`;
    let isOver = false;
    const beside = (async () => {
      const texts: string[] = [];
      while (!isOver) {
        const outcome = await streamChat(target, { body: { model: 'default', ...ask } });
        // Whoever is in the same batcher at each of these deaths stays with it no longer than until suspects run one at a time.
        texts.push(outcome.faults.join() || outcome.text);
      }
      return texts;
    })();
    let deathCount = 0;
    const killing = (async () => {
      while (!isOver) {
        const [key] = await redis.keys(job);
        // BullMQ's count of takes: the lock of a dead holder is there a while longer, and its successor has its name.
        const attempt = key === undefined ? 0 : Number(await redis.hget(key, 'ats'));
        const isRunning =
          deathCount < 2 || (key !== undefined && (await triesOf(redis, response.headers.get('x-sluice-stream-id')!)) > deathCount - 2);
        const pid = attempt > deathCount && isRunning ? await product!.pidOf((await redis.get(`${key}:lock`)) ?? '') : undefined;
        if (pid !== undefined && deathCount < 4) {
          deathCount += 1;
          process.kill(pid, 'SIGKILL');
        }
        await new Promise(resolve => setTimeout(resolve, 20));
      }
    })();
    const text = await response.text();
    isOver = true;
    await killing;
    const error = /^data: (\{"error".*)$/m.exec(text)?.[1];
    expect(error, `${deathCount} deaths, ${text.slice(-400)}`).toBeDefined();
    expect(JSON.parse(error!)).toEqual({
      error: {
        ...{ type: 'server_error', param: null, code: 'generation_failed' },
        message: GIVEN_UP,
      },
    });
    expect(deathCount).toBe(4);
    for (const one of await beside) expect(one).toBe(undisturbed);
    expect(textOf(await chat(ask))).toBe(undisturbed);
    await product!.idle();
    expect(await redis.keys(`sluice:{${known!.model}}:*:chatcmpl-*`)).toEqual([]);
  });
});

describe('memory that runs out while the model runs', () => {
  it('costs at most the request that needed it, and none that comes later', async () => {
    const { chat } = await start(1);
    const small = { messages: [user('Tell of a lake.')], max_tokens: 8, ignore_eos: true };
    const undisturbed = textOf(await chat(small));
    const pid = product!.batcherPid;
    const addressBytes = Number(/VmSize:\s+(\d+) kB/.exec(await readFile(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024;
    const limitAddresses = (limit: number | 'unlimited') => execFileSync('prlimit', ['--pid', String(pid), `--as=${limit}:unlimited`]);
    limitAddresses(addressBytes + 2 ** 20);
    const response = await product!.post('/chat/completions', {
      ...{ model: 'default', max_tokens: 4, messages: [user('More and more of it. '.repeat(250))] },
    });
    const reply = (await response.json()) as { error?: { code: string; message: string } };
    // onnxruntime says that it has no memory, or the process ends and another one, without the limit, goes on with the request.
    if (response.status !== 200) {
      expect(reply.error).toMatchObject({ code: 'generation_failed', message: 'The model could not be run for this request.' });
      limitAddresses('unlimited');
    }
    expect(textOf(await chat(small))).toBe(undisturbed);
  });
});

describe('a clock that jumps', () => {
  it.each([3, -3])('by %i hours in a batcher: what runs goes on byte for byte, and new requests are served', async hours => {
    const folder = await mkdtemp(join(tmpdir(), 'sluice-clock-'));
    const file = join(folder, 'shift');
    process.env.CLOCK_SHIFT_FILE = file;
    process.env.NODE_OPTIONS = `--import ${pathToFileURL(join(import.meta.dirname, 'clock-shift.ts')).href}`;
    try {
      const { redis, target, chat } = await start(2);
      delete process.env.NODE_OPTIONS;
      const ask = { messages: [user('Tell of a clock.')], seed: 3, temperature: 0.7, max_tokens: 48, ignore_eos: true };
      const undisturbed = await streamChat(target, { body: { model: 'default', ...ask } });
      await writeFile(file, String(hours * HOUR_MS));
      let isShifted = false;
      const outcome = await streamChat(target, {
        body: { model: 'default', ...ask },
        onChunk: count => {
          if (count !== 8) return;
          // One of the two: that they differ among themselves is the harder case.
          isShifted = true;
          process.kill(product!.batcherPids[0]!, 'SIGUSR2');
        },
      });
      expect(isShifted).toBe(true);
      expect(outcome.faults).toEqual([]);
      expect(outcome.text).toBe(undisturbed.text);
      // Long enough for cards by the new clock, and for old ones to be stale.
      for (let i = 0; i < 8; i++) {
        const reply = await chat({ ...ask, max_tokens: 4 });
        expect(undisturbed.text.startsWith(textOf(reply))).toBe(true);
        await new Promise(resolve => setTimeout(resolve, 1_000));
      }
      expect(await redis.hlen(BATCHER_CARDS)).toBe(2);
      const cards = Object.values(await redis.hgetall(BATCHER_CARDS)).map(json => parseCard(json)!);
      for (const card of cards) expect(Math.abs(card.writtenAt - Date.now())).toBeLessThan(HOUR_MS);
    } finally {
      delete process.env.NODE_OPTIONS;
      delete process.env.CLOCK_SHIFT_FILE;
      await rm(folder, { recursive: true, force: true });
    }
  });
});

async function start(batcherCount: number) {
  const started = await Product.start({ batcherCount });
  product = started;
  const target = { baseUrl: started.baseUrl, apiKey: started.key };
  return { redis: started.redis, target, chat: started.chat.bind(started) };
}

/** How often its turn apart from other suspects has come. */
async function triesOf(redis: Product['redis'], jobId: string): Promise<number> {
  const record = await redis.xrange(generationKey(jobId), '-', '+');
  return record.filter(([, fields]) => fields.some(field => field.includes('"type":"tried"'))).length;
}
