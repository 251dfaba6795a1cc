/** Whether a job goes to the batcher that holds the beginning of its prompt. */
import { describe, expect, it } from 'vitest';
import { PrefixRouter } from '../../gateway/prefix-router.ts';
import type { BatcherCard } from '../../shared/batcher-card.ts';
import type { Prompt } from '../../shared/job.ts';
import { prefixHashes } from '../../shared/prefix.ts';
import { PrefixDirectory } from '../../shared/prefix-directory.ts';
import { QueueEstimate } from '../../shared/queue-estimate.ts';

const NOW = 1_000_000;
const MODEL = 'm';
const PROMPT: Prompt = { kind: 'chat', messages: [{ role: 'user', content: 'Once upon a time there was a queue. '.repeat(60) }] };
const JOB = { model: MODEL, tenant: 'acme', prompt: PROMPT };

/** It prefills 1,000 tokens and ends one answer a second. */
function card(batcherId: string, more: Partial<BatcherCard> = {}): BatcherCard {
  return {
    ...{ version: 1, batcherId, model: MODEL, contextTokens: 4_096, writtenAt: NOW, startedAt: 0, state: 'serving' },
    ...{ runningCount: 0, waitingCount: 0, waitingTokens: 0, ownQueueCount: 0, maxRunningCount: 4, kvCapacityTokens: 1, kvUsedTokens: 0 },
    ...{ prefillTokensPerSecond: 1_000, decodeTokensPerSecond: 100, ...more },
  };
}

/** `holder` has 500 tokens of the prompt. */
function router(holder = 'a', estimate = measured()): PrefixRouter {
  const directory = new PrefixDirectory();
  const hashes = prefixHashes(PROMPT, 'acme').slice(0, 5);
  directory.apply({ batcherId: holder, epoch: 1, seq: 0, added: hashes.map((hash, i) => [hash, 100 * (i + 1)]), evicted: [] });
  return new PrefixRouter({ directory, estimate });
}

function measured(): QueueEstimate {
  const estimate = new QueueEstimate();
  estimate.finished(MODEL, { promptTokens: 200, completionTokens: 100, cachedTokens: 0 });
  return estimate;
}

describe('PrefixRouter', () => {
  it('sends a job to the batcher that holds the beginning of its prompt', () => {
    expect(router().route(JOB, [card('a'), card('b')], NOW)).toEqual({ batcherId: 'a', savedTokens: 500 });
  });

  it('sends nobody to what another tenant has left there', () => {
    expect(router().route({ ...JOB, tenant: 'other' }, [card('a'), card('b')], NOW)).toBeUndefined();
  });

  it('weighs what is saved against the wait', () => {
    // Saved is half a second; the next row there is free in a second, with the other now.
    expect(router().route(JOB, [card('a', { runningCount: 4 }), card('b')], NOW)).toBeUndefined();
    // As long a wait with the other.
    expect(router().route(JOB, [card('a', { runningCount: 4 }), card('b', { runningCount: 4 })], NOW)).toMatchObject({ batcherId: 'a' });
    // Prompts of 400 tokens are to be computed there before.
    expect(router().route(JOB, [card('a', { waitingCount: 1, waitingTokens: 400 }), card('b')], NOW)).toMatchObject({ batcherId: 'a' });
    expect(router().route(JOB, [card('a', { waitingCount: 1, waitingTokens: 600 }), card('b')], NOW)).toBeUndefined();
  });

  it('prefers the shared queue where both are level', () => {
    expect(router().route(JOB, [card('a', { waitingCount: 1, waitingTokens: 500 }), card('b')], NOW)).toBeUndefined();
  });

  it('never sends to a batcher that is stale, draining, gone, of another model, or has no queue of its own', () => {
    const others = [card('b'), card('c')];
    for (const more of [{ writtenAt: NOW - 10_000 }, { state: 'draining' as const }, { model: 'other' }, { ownQueueCount: undefined }]) {
      expect(router().route(JOB, [card('a', more as Partial<BatcherCard>), ...others], NOW)).toBeUndefined();
    }
    expect(router().route(JOB, others, NOW)).toBeUndefined();
  });

  it('counts what it has sent there itself until a newer card counts it', () => {
    const cards = [card('a'), card('b')];
    const one = router();
    for (let count = 0; count < 2; count++) {
      const route = one.route(JOB, cards, NOW);
      expect(route).toMatchObject({ batcherId: 'a' });
      one.sent(route!, cards);
    }
    // Two prompts of 200 tokens before it leave 100 ms of the 500; a third would take more than is saved.
    one.sent(one.route(JOB, cards, NOW)!, cards);
    expect(one.route(JOB, cards, NOW)).toBeUndefined();
    expect(one.route(JOB, [card('a', { writtenAt: NOW + 1 }), card('b')], NOW)).toMatchObject({ batcherId: 'a' });
  });

  it('says nothing while nothing is measured, with several prompts, or to one batcher alone', () => {
    expect(router().route(JOB, [card('a', { prefillTokensPerSecond: 0 }), card('b')], NOW)).toBeUndefined();
    const busy = card('a', { runningCount: 4 });
    expect(router('a', new QueueEstimate()).route(JOB, [busy, card('b')], NOW)).toBeUndefined();
    expect(router().route({ ...JOB, morePrompts: [PROMPT] }, [card('a'), card('b')], NOW)).toBeUndefined();
    expect(router().route(JOB, [card('a')], NOW)).toBeUndefined();
  });
});
