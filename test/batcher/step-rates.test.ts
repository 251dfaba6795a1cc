import { describe, expect, test } from 'vitest';
import { ChunkCost, type ChunkSize } from '../../batcher/chunk-cost.ts';
import { StepRates } from '../../batcher/step-rates.ts';

/** A host: milliseconds of a chunk. The first is the default model on two cores, then the same with onnxruntime's own operators, then a large model with cheap attention. */
const HOSTS = {
  small: (c: ChunkSize) => 3 + 1.5 * c.tokens + 0.002 * c.start + 0.0008 * c.tokens * (c.start + c.tokens / 2),
  rereading: (c: ChunkSize) => 4 + 2.4 * c.tokens + 0.018 * c.start + 0.00086 * c.tokens * (c.start + c.tokens / 2),
  large: (c: ChunkSize) => 20 + 30 * c.tokens + 0.02 * c.start + 0.0008 * c.tokens * (c.start + c.tokens / 2),
  flat: (c: ChunkSize) => 5 * c.tokens,
};

/** A prompt computed chunk by chunk, each sized for the bound; returns the chunks' true times. */
function prefill(rates: StepRates, host: (chunk: ChunkSize) => number, run: { from: number; to: number; boundMs: number }): number[] {
  const times: number[] = [];
  for (let start = run.from; start < run.to; ) {
    const tokens = Math.max(16, Math.min(512, Math.floor(rates.chunkTokensWithin(run.boundMs, start) ?? 128)));
    const ms = host({ start, tokens });
    rates.prefilled({ start, tokens }, ms);
    times.push(ms);
    start += tokens;
  }
  return times;
}

describe('chunk sizes', () => {
  test('nothing is known before the first chunk', () => {
    const rates = new StepRates();
    expect(rates.chunkTokensWithin(150, 0)).toBeUndefined();
    expect([rates.prefillTokensPerSecond, rates.decodeTokensPerSecond]).toEqual([0, 0]);
  });

  test.each(Object.entries(HOSTS))('on a %s host a long prompt keeps to the bound from the second chunk on', (name, host) => {
    const boundMs = name === 'large' ? 1000 : 150;
    const rates = new StepRates();
    prefill(rates, host, { from: 0, to: 40, boundMs });
    const times = prefill(rates, host, { from: 0, to: 4000, boundMs });
    // 16 tokens are the least that is worth a run, though they may take longer.
    const most = Math.max(boundMs, host({ start: 4000, tokens: 16 }));
    expect(Math.max(...times.slice(1))).toBeLessThan(1.15 * most);
    // And it is used: chunks are not much shorter than they may be.
    expect(times.slice(3, -1).toSorted((a, b) => a - b)[0]).toBeGreaterThan(0.8 * boundMs);
  });

  test('a chunk behind a long cached prefix is small at once, though only prompts from the start were seen', () => {
    const rates = new StepRates();
    for (let i = 0; i < 20; i++) {
      for (const chunk of [
        { start: 0, tokens: 60 },
        { start: 60, tokens: 40 },
        { start: 0, tokens: 20 },
      ])
        rates.prefilled(chunk, HOSTS.small(chunk));
    }
    const tokens = rates.chunkTokensWithin(150, 3000)!;
    expect(HOSTS.small({ start: 3000, tokens })).toBeLessThan(1.5 * 150);
    expect(rates.chunkTokensWithin(150, 0)).toBeGreaterThan(50);
  });

  test('after a long prompt a short one has large chunks again', () => {
    const rates = new StepRates();
    prefill(rates, HOSTS.small, { from: 0, to: 8000, boundMs: 400 });
    const tokens = rates.chunkTokensWithin(150, 0)!;
    expect(HOSTS.small({ start: 0, tokens })).toBeGreaterThan(0.7 * 150);
    expect(HOSTS.small({ start: 0, tokens })).toBeLessThan(1.3 * 150);
  });

  test('large chunks of a prompt alone say enough for the small ones beside a stream', () => {
    const rates = new StepRates();
    for (let start = 0; start < 4096; start += 512) rates.prefilled({ start, tokens: 512 }, HOSTS.small({ start, tokens: 512 }));
    for (const start of [0, 1000, 2000, 3000]) {
      const tokens = Math.max(16, rates.chunkTokensWithin(150, start)!);
      expect(HOSTS.small({ start, tokens })).toBeLessThan(1.3 * 150);
    }
  });

  test('one chunk that the machine held up changes little', () => {
    const rates = new StepRates();
    prefill(rates, HOSTS.small, { from: 0, to: 2000, boundMs: 150 });
    const before = rates.chunkTokensWithin(150, 2000)!;
    rates.prefilled({ start: 2000, tokens: 30 }, 3_000);
    expect(rates.chunkTokensWithin(150, 2000)! / before).toBeGreaterThan(0.4);
  });

  test('a host whose time others take is followed within a few chunks, and so is its end', () => {
    const rates = new StepRates();
    prefill(rates, HOSTS.small, { from: 0, to: 2000, boundMs: 150 });
    const slower = prefill(rates, chunk => 2.5 * HOSTS.small(chunk), { from: 0, to: 400, boundMs: 150 });
    expect(Math.max(...slower.slice(2, -1))).toBeLessThan(1.15 * 150);
    prefill(rates, HOSTS.small, { from: 400, to: 800, boundMs: 150 });
    const tokens = rates.chunkTokensWithin(150, 800)!;
    expect(HOSTS.small({ start: 800, tokens })).toBeGreaterThan(0.7 * 150);
  });

  test('a host that becomes slower or faster is followed within seconds of work', () => {
    for (const change of [0.5, 2]) {
      const rates = new StepRates();
      prefill(rates, HOSTS.small, { from: 0, to: 2000, boundMs: 150 });
      const changed = (chunk: ChunkSize) => change * HOSTS.small(chunk);
      for (let i = 0; i < 3; i++) prefill(rates, changed, { from: 0, to: 2000, boundMs: 150 });
      const tokens = rates.chunkTokensWithin(150, 1000)!;
      expect(changed({ start: 1000, tokens }) / 150).toBeGreaterThan(0.85);
      expect(changed({ start: 1000, tokens }) / 150).toBeLessThan(1.15);
    }
  });
});

describe('a chunk beside running streams', () => {
  test('gets what the slowest of their recent steps leaves of the bound', () => {
    const rates = new StepRates();
    expect(rates.chunkMsWithin(150)).toBe(120);
    for (const ms of [10, 20, 10]) rates.stepped(ms);
    expect(rates.chunkMsWithin(150)).toBeCloseTo(120 - 18);
    for (let step = 0; step < 50; step++) rates.stepped(5);
    expect(rates.chunkMsWithin(150)).toBeCloseTo(115);
  });

  test('gets most of the bound however slow they are, and all of it when they have left', () => {
    const rates = new StepRates();
    rates.stepped(400);
    expect(rates.chunkMsWithin(150)).toBeCloseTo(96);
    for (let step = 0; step < 100; step++) rates.stepped(0);
    expect(rates.chunkMsWithin(150)).toBeCloseTo(120, 1);
  });
});

describe('chunk cost', () => {
  test('size and time are inverse to each other, whatever was seen', () => {
    const cost = new ChunkCost();
    for (const chunk of [
      { start: 0, tokens: 33 },
      { start: 33, tokens: 128 },
      { start: 900, tokens: 7 },
      { start: 3000, tokens: 512 },
    ]) {
      cost.observe(chunk, HOSTS.small(chunk));
      for (const start of [0, 500, 4000]) {
        for (const tokens of [1, 16, 300]) expect(cost.tokensWithin(cost.msOf({ start, tokens })!, start)).toBeCloseTo(tokens, 6);
      }
    }
  });

  test('times that fit no shape leave a size that is finite and not negative', () => {
    const cost = new ChunkCost();
    const random = [5, 900, 1, 40, 40, 3000, 0.2, 77];
    for (const [i, ms] of random.entries()) cost.observe({ start: (i * 911) % 5000, tokens: 1 + ((i * 37) % 512) }, ms);
    for (const start of [0, 100, 8000]) {
      for (const ms of [1, 150, 60_000]) {
        const tokens = cost.tokensWithin(ms, start)!;
        expect(tokens).toBeGreaterThanOrEqual(0);
        expect(Number.isFinite(tokens)).toBe(true);
      }
    }
  });

  test('a clock that stood still teaches nothing', () => {
    const cost = new ChunkCost();
    cost.observe({ start: 0, tokens: 5 }, 0);
    expect(cost.msOf({ start: 0, tokens: 5 })).toBeUndefined();
  });
});

test('rates are of recent work, tokens over time', () => {
  const rates = new StepRates();
  for (let i = 0; i < 200; i++) rates.decoded(8, 50);
  expect(rates.decodeTokensPerSecond).toBeCloseTo(160);
  for (let i = 0; i < 50; i++) rates.prefilled({ start: 0, tokens: 100 + i }, 2 * (100 + i));
  expect(rates.prefillTokensPerSecond).toBeGreaterThan(400);
  expect(rates.prefillTokensPerSecond).toBeLessThan(600);
});
