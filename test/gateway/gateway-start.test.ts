/** GatewayStart: settings are checked by rule, keys compared whole, models found by name, and both runtimes are configured alike. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { COMPATIBILITY_DATE, COMPATIBILITY_FLAGS, DURABLE_OBJECTS } from '../../deploy/worker-manifest.ts';
import { findModel, servedModels } from '../../gateway/card-board.ts';
import { readSettings, SETTINGS } from '../../gateway/env.ts';
import { firstPriority, STEPS_PER_CLASS } from '../../gateway/fair-queue.ts';
import type { BatcherCard } from '../../shared/batcher-card.ts';
import { TASK_KINDS, type TaskKind } from '../../shared/job.ts';

describe('settings', () => {
  test('defaults lie within their own rules', () => {
    const settings = readSettings({});
    expect(settings.brokerShardCount).toBe(1);
    expect(settings.developmentKey).toBeUndefined();
    for (const rule of SETTINGS) {
      if (rule.fallback !== undefined) expect(() => readSettings({ [rule.name]: String(rule.fallback) })).not.toThrow();
    }
  });

  test.each(['-1', '0', '1.5', 'many', '1e3', '65', ' ', {}, true])('a bad number: %j', value => {
    expect(() => readSettings({ SLUICE_BROKER_SHARDS: value })).toThrow(
      'SLUICE_BROKER_SHARDS must be a whole number of objects from 1 to 64',
    );
  });

  test('every fault is named, and no secret is shown', () => {
    const read = () => readSettings({ REDIS_URL: 'http://user:hunter2@host', SLUICE_DEV_KEY: 'short', SLUICE_HEARTBEAT_MS: '5' });
    expect(read).toThrow(/REDIS_URL.*SLUICE_DEV_KEY|SLUICE_HEARTBEAT_MS.*REDIS_URL/);
    expect(read).not.toThrow(/hunter2|short/);
  });
});

describe('models', () => {
  const card = (more: Partial<BatcherCard>): BatcherCard => ({
    ...{ version: 1, batcherId: 'b', model: 'm', contextTokens: 100, writtenAt: 1_000, startedAt: 10, state: 'serving' as const },
    ...{
      runningCount: 0,
      waitingCount: 0,
      maxRunningCount: 1,
      kvCapacityTokens: 1,
      kvUsedTokens: 0,
      prefillTokensPerSecond: 0,
      decodeTokensPerSecond: 0,
    },
    ...more,
  });
  const find = (cards: BatcherCard[], name: string, defaultModel?: string) =>
    findModel(cards, name, { task: 'generate', defaultModel, now: 2_000 });

  test('the smallest context of its batchers, the longest service', () => {
    const cards = [
      card({ contextTokens: 50, startedAt: 20 }),
      card({}),
      card({ contextTokens: 5, writtenAt: -9_000 }),
      card({ contextTokens: 4, state: 'draining' }),
    ];
    expect(servedModels(cards, 2_000)).toEqual([{ name: 'm', contextTokens: 50, servedSince: 10, tasks: ['generate'] }]);
  });

  describe('by what they do', () => {
    const able = (tasks: string[]) => ({ tasks });
    // By name the one that embeds comes first.
    const both = [card({ model: 'a', ...able(['embed', 'tokenize']) }), card({ model: 'b', ...able(['generate', 'tokenize']) })];
    const of = (task: TaskKind, cards: BatcherCard[], name: string, defaultModel?: string) =>
      findModel(cards, name, { task, defaultModel, now: 2_000 }).name;

    test('default is one that does it, and first of all the one that generates', () => {
      expect(TASK_KINDS.map(task => [task, ['generate', 'tokenize', 'embed'].includes(task) && of(task, both, 'default')])).toEqual([
        ['generate', 'b'],
        ['embed', 'a'],
        ['tokenize', 'b'],
        ['detokenize', false],
      ]);
      // The setting says so, unless that model cannot.
      expect([of('tokenize', both, 'default', 'a'), of('generate', both, 'default', 'a')]).toEqual(['a', 'b']);
    });

    test('a model that does other things is named as such', () => {
      expect(() => of('embed', both, 'b')).toThrow(expect.objectContaining({ code: 'invalid_value', param: 'model' }));
      expect(() => of('generate', both, 'a')).toThrow("'a' does not generate text");
    });

    test('where none does it, or none now', () => {
      expect(() => of('detokenize', both, 'default')).toThrow(expect.objectContaining({ code: 'model_not_found', param: 'model' }));
      const away = [card({ model: 'a', writtenAt: -9_000, ...able(['embed']) }), both[1]!];
      expect(() => of('embed', away, 'default')).toThrow(expect.objectContaining({ code: 'no_batcher' }));
      expect(() => of('generate', [both[0]!], 'default')).toThrow(expect.objectContaining({ code: 'no_batcher' }));
    });

    test('batchers of one model may be of several versions', () => {
      const mixed = [card({}), card({ batcherId: 'c', ...able(['generate', 'tokenize']) })];
      expect(of('tokenize', mixed, 'm')).toBe('m');
    });
  });

  test('default, by setting or by name', () => {
    const cards = [card({ model: 'z' }), card({ model: 'b' })];
    expect(find(cards, 'default').name).toBe('b');
    expect(find(cards, 'default', 'z').name).toBe('z');
    expect(() => find(cards, 'default', 'gone')).toThrow(expect.objectContaining({ code: 'no_batcher' }));
  });

  test('unknown, known but away, and nothing at all', () => {
    expect(() => find([card({})], 'x')).toThrow(expect.objectContaining({ code: 'model_not_found', param: 'model' }));
    expect(() => find([card({}), card({ model: 'x', writtenAt: -9_000 })], 'x')).toThrow(expect.objectContaining({ code: 'no_batcher' }));
    expect(() => find([], 'x')).toThrow(expect.objectContaining({ code: 'no_batcher', retryAfterSeconds: 5 }));
  });
});

test('classes rank within BullMQ’s range', () => {
  const ranks = (['priority', 'default', 'flex'] as const).map(firstPriority);
  expect(ranks).toEqual([...ranks].sort((a, b) => a - b));
  expect(ranks.every(rank => rank >= 1 && rank + STEPS_PER_CLASS <= 2 ** 21)).toBe(true);
});

test('wrangler.toml and the workerd configuration say the same', async () => {
  const toml = await readFile(join(import.meta.dirname, '..', '..', 'wrangler.toml'), 'utf8');
  expect(/^compatibility_date = "(.+)"$/m.exec(toml)?.[1]).toBe(COMPATIBILITY_DATE);
  expect(JSON.parse(/^compatibility_flags = (\[.+\])$/m.exec(toml)![1]!)).toEqual(COMPATIBILITY_FLAGS);
  const bound = [...toml.matchAll(/^\[\[durable_objects\.bindings\]\]\nname = "(.+)"\nclass_name = "(.+)"$/gm)];
  expect(bound.map(([, binding, className]) => ({ binding, className }))).toEqual(
    DURABLE_OBJECTS.map(({ binding, className }) => ({ binding, className })),
  );
  const migrated = [...toml.matchAll(/^new_sqlite_classes = (\[.+\])$/gm)].flatMap(([, list]) => JSON.parse(list!) as string[]);
  expect(migrated.sort()).toEqual(DURABLE_OBJECTS.map(({ className }) => className).sort());
});
