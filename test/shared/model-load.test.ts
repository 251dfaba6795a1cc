import { expect, test } from 'vitest';
import type { BatcherCard } from '../../shared/batcher-card.ts';
import { loadOf } from '../../shared/model-load.ts';

test('the load of a model is that of its fresh, serving batchers together', () => {
  const card = (more: Partial<BatcherCard>): BatcherCard => ({
    ...{ version: 1, batcherId: 'b', model: 'm', contextTokens: 1, writtenAt: 1_000, startedAt: 0, state: 'serving' },
    ...{ runningCount: 1, waitingCount: 2, waitingTokens: 30, maxRunningCount: 4, kvCapacityTokens: 1, kvUsedTokens: 0 },
    ...{ prefillTokensPerSecond: 500, decodeTokensPerSecond: 50 },
    ...more,
  });
  const cards = [card({}), card({}), card({ model: 'x' }), card({ state: 'draining' }), card({ writtenAt: -60_000 })];
  expect(loadOf(cards, 'm', 1_000)).toMatchObject({
    ...{ runningCount: 2, waitingCount: 4, waitingTokens: 60, maxRunningCount: 8 },
    ...{ prefillTokensPerSecond: 1_000, decodeTokensPerSecond: 100 },
  });
  const { waitingTokens: _, ...silent } = card({});
  expect(loadOf([card({}), silent], 'm', 1_000).waitingTokens).toBeUndefined();
});
