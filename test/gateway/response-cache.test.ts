/** What a tenant's cache keeps, for how long, and what of a request makes it the same. */
import { DatabaseSync } from 'node:sqlite';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { contentKey, decodeReply, encodeReply, isDeterministic, ResponseCache } from '../../gateway/response-cache.ts';
import type { Sql } from '../../gateway/tenant/tenant-store.ts';
import type { Job } from '../../shared/job.ts';
import type { TokenEvent } from '../../shared/token-event.ts';

function memory(): { sql: Sql; database: DatabaseSync } {
  const database = new DatabaseSync(':memory:');
  const sql: Sql = {
    exec(query, ...bindings) {
      const rows = database.prepare(query).all(...bindings);
      return { toArray: () => rows as Record<string, unknown>[] };
    },
  };
  return { sql, database };
}

const BOUNDS = { maxBytes: 10_000, lifetimeMs: 1_000 };

describe('ResponseCache', () => {
  it('gives again what it got, until its time is over', () => {
    const cache = new ResponseCache(memory().sql, BOUNDS);
    cache.put('k', 'v', 0);
    expect(cache.find('k', 999)).toBe('v');
    expect(cache.find('k', 1_000)).toBeUndefined();
    expect(cache.find('other', 0)).toBeUndefined();
    cache.put('k', 'w', 2_000);
    expect(cache.find('k', 2_000)).toBe('w');
    cache.prune(3_000);
    expect(cache.bytes).toBe(0);
  });

  it('lets go first of what was not asked for the longest', () => {
    const cache = new ResponseCache(memory().sql, { maxBytes: 10_000, lifetimeMs: 1e9 });
    const value = 'x'.repeat(300);
    for (let i = 0; i < 20; i++) cache.put(`k${i}`, value, i);
    expect(cache.find('k0', 20_000)).toBe(value);
    cache.put('new', value, 20_001);
    expect(cache.find('k0', 20_002)).toBe(value);
    expect(cache.find('new', 20_002)).toBe(value);
    expect(cache.find('k1', 20_002)).toBeUndefined();
  });

  it('keeps nothing that is too large, and nothing at all when it is off', () => {
    const cache = new ResponseCache(memory().sql, BOUNDS);
    cache.put('k', 'x'.repeat(2_500), 0);
    expect(cache.find('k', 0)).toBeUndefined();
    const off = new ResponseCache(memory().sql, { ...BOUNDS, lifetimeMs: 0 });
    off.put('k', 'v', 0);
    expect(off.find('k', 0)).toBeUndefined();
    expect(off.bytes).toBe(0);
  });

  it('stays within its bound and knows its size, whatever is put into it, and over restarts', () => {
    const act = fc.record({
      kind: fc.constantFrom('put', 'put', 'put', 'find', 'prune', 'restart'),
      key: fc.nat(30),
      length: fc.nat(2_400),
      pauseMs: fc.nat(300),
    });
    fc.assert(
      fc.property(fc.array(act, { maxLength: 60 }), acts => {
        const { sql, database } = memory();
        let cache = new ResponseCache(sql, BOUNDS);
        const model = new Map<string, { value: string; until: number }>();
        let now = 0;
        for (const { kind, key, length, pauseMs } of acts) {
          now += pauseMs;
          const name = `k${key}`;
          if (kind === 'put') {
            const value = `${'é'.repeat(length / 2)}${now}`;
            cache.put(name, value, now);
            model.set(name, { value, until: now + BOUNDS.lifetimeMs });
          } else if (kind === 'find') {
            const found = cache.find(name, now);
            if (found !== undefined) {
              expect(found).toBe(model.get(name)?.value);
              expect(model.get(name)!.until).toBeGreaterThan(now);
            }
          } else if (kind === 'prune') cache.prune(now);
          else cache = new ResponseCache(sql, BOUNDS);
          const bytes = Number(database.prepare('SELECT COALESCE(SUM(bytes), 0) AS bytes FROM reply').get()!.bytes);
          expect(cache.bytes).toBe(bytes);
          expect(bytes).toBeLessThanOrEqual(BOUNDS.maxBytes);
        }
      }),
    );
  });
});

const JOB: Job = {
  ...{ version: 1, id: 'chatcmpl-1', model: 'm', tenant: 't', shard: 'main-0', submittedAt: 1, choiceCount: 1, serviceClass: 'default' },
  prompt: { kind: 'chat', messages: [{ role: 'user', content: 'hi' }] },
  sampling: { temperature: 0 },
  stopping: { maxTokens: 5 },
};

describe('contentKey', () => {
  it('is the same whoever asks, when, how urgently, and of which model by which name', async () => {
    const key = await contentKey(JOB);
    const other = {
      ...JOB,
      id: 'x',
      tenant: 'u',
      model: 'default',
      shard: 'main-1',
      submittedAt: 2,
      serviceClass: 'flex' as const,
      ttftSloMs: 3,
      traceparent: 'y',
    };
    expect(await contentKey(other)).toBe(key);
  });

  it('is another for whatever changes the answer, fields that are not known here included', async () => {
    const changes: object[] = [
      { prompt: { kind: 'chat', messages: [{ role: 'user', content: 'ho' }] } },
      { prompt: { kind: 'text', text: 'hi' } },
      { sampling: { temperature: 0, seed: 1 } },
      { stopping: { maxTokens: 6 } },
      { choiceCount: 2 },
      { echo: 'text' },
      { grammar: { type: 'json_object' } },
    ];
    const keys = await Promise.all([{}, ...changes].map(change => contentKey({ ...JOB, ...change } as Job)));
    expect(new Set(keys).size).toBe(keys.length);
  });
});

it('only greedy and seeded requests have one answer', () => {
  expect(isDeterministic({ sampling: { temperature: 0 } })).toBe(true);
  expect(isDeterministic({ sampling: { temperature: 1, seed: 0 } })).toBe(true);
  expect(isDeterministic({ sampling: { temperature: 0.1 } })).toBe(false);
});

describe('a kept reply', () => {
  const head = { id: 'old', attempt: 3 };
  const logprob = { token: 'a', tokenId: 1, logprob: -1, bytes: [97], top: [] };
  const finish = {
    type: 'finish',
    usage: { promptTokens: 3, completionTokens: 4, cachedTokens: 1 },
    timings: { queueMs: 1, prefillMs: 1, ttftMs: 1, decodeTokensPerSecond: 1 },
  } as const;

  it('has the same texts, choices, reasons and usage, under the new id and from 0', () => {
    const events: TokenEvent[] = [
      { type: 'accepted', ...head, seq: 0, promptTokens: 3 },
      { type: 'delta', ...head, seq: 1, choice: 0, tokenIds: [1], text: 'a', logprobs: [logprob] },
      { type: 'delta', ...head, seq: 2, choice: 0, tokenIds: [2], text: 'b', logprobs: [logprob] },
      { type: 'delta', ...head, seq: 3, choice: 1, tokenIds: [3], text: 'c', finishReason: 'length' },
      { type: 'delta', ...head, seq: 4, choice: 0, tokenIds: [4], text: 'd', logprobs: [logprob], finishReason: 'stop' },
      { ...finish, ...head, seq: 5 },
    ];
    const { model, events: kept } = decodeReply(encodeReply('m', events)!, 'new');
    expect(model).toBe('m');
    expect(kept.map(event => [event.id, event.attempt, event.seq])).toEqual([0, 1, 2, 3, 4].map(seq => ['new', 1, seq]));
    expect(kept[1]).toMatchObject({ choice: 0, text: 'ab', tokenIds: [1, 2], logprobs: [logprob, logprob] });
    expect(kept[2]).toMatchObject({ choice: 1, text: 'c', finishReason: 'length' });
    expect(kept[3]).toMatchObject({ choice: 0, text: 'd', finishReason: 'stop' });
    expect(kept[4]).toMatchObject(finish);
  });

  it('is none when the answer ended in an error or not at all', () => {
    expect(encodeReply('m', [])).toBeUndefined();
    expect(encodeReply('m', [{ type: 'accepted', ...head, seq: 0, promptTokens: 3 }])).toBeUndefined();
    expect(encodeReply('m', [{ type: 'error', ...head, seq: 0, code: 'generation_failed', message: 'x' }])).toBeUndefined();
  });
});
