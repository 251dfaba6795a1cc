/** Who is let into a queue, told from rates, places and bounds. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Admission, type Applicant } from '../../shared/admission.ts';
import type { ModelLoad } from '../../shared/model-load.ts';
import { QueueEstimate } from '../../shared/queue-estimate.ts';

const MODEL = 'm';

/** Prompts of 200 tokens and answers of 100. */
function measured(): QueueEstimate {
  const estimate = new QueueEstimate();
  estimate.finished(MODEL, { promptTokens: 200, completionTokens: 100, cachedTokens: 0 });
  return estimate;
}

function admission(settings: { maxWaitMs?: number; maxQueuedTokens?: number } = {}, estimate = measured()): Admission {
  return new Admission({ estimate, settings: { maxWaitMs: 10_000, maxQueuedTokens: 1_000_000, reservedTokens: 500, ...settings } });
}

/** Every row taken; an answer ends each second. */
const FULL: ModelLoad = {
  ...{ runningCount: 8, maxRunningCount: 8, waitingCount: 0, waitingTokens: 0 },
  ...{ prefillTokensPerSecond: 200, decodeTokensPerSecond: 100 },
};
const job: Applicant = { model: MODEL, tokens: 300, maxWaitMs: undefined };

describe('Admission', () => {
  it('lets in as many as will be begun in time', () => {
    // The first waits 1 s for a row, each further one 1 s for a row and 1 s for the prompt before it.
    expect(admission().maxAheadCount(job, FULL)).toBe(4);
    expect(admission().maxAheadCount({ ...job, maxWaitMs: 1_000 }, FULL)).toBe(0);
    expect(admission().maxAheadCount({ ...job, maxWaitMs: 999 }, FULL)).toBe(-1);
  });

  it('lets a request in that may not wait at all while a row is free', () => {
    const free = { ...FULL, runningCount: 7 };
    expect(admission().maxAheadCount({ ...job, maxWaitMs: 0 }, free)).toBe(0);
    expect(admission().maxAheadCount({ ...job, maxWaitMs: 0 }, { ...free, waitingCount: 1, waitingTokens: 10 })).toBe(-1);
  });

  it('bounds what is queued in tokens, also where nothing is measured yet', () => {
    expect(admission({ maxQueuedTokens: 900, maxWaitMs: 1e9 }).maxAheadCount(job, FULL)).toBe(2);
    const unmeasured = admission({ maxQueuedTokens: 1_500, maxWaitMs: 0 }, new QueueEstimate());
    expect(unmeasured.maxAheadCount(job, { ...FULL, prefillTokensPerSecond: 0, decodeTokensPerSecond: 0 })).toBe(4);
    // A request that is larger than the bound finds an empty queue some time.
    expect(unmeasured.maxAheadCount({ ...job, tokens: 1e6 }, FULL)).toBe(0);
  });

  it('tells with a refusal how long it will take until a try may succeed', () => {
    const byWait = admission().refusal(job, 5, FULL);
    expect(byWait).toMatchObject({ code: 'queue_full', status: 429, retryAfterSeconds: 1 });
    expect(byWait.message).toContain('about 11 s to be begun, longer than the 10 s');
    expect(admission().refusal(job, 50, FULL).retryAfterSeconds).toBe(91);
    const byTokens = admission({ maxQueuedTokens: 900, maxWaitMs: 1e9 }).refusal(job, 5, FULL);
    expect(byTokens).toMatchObject({ code: 'queue_full', retryAfterSeconds: 7 });
    expect(byTokens.message).toContain('1500 tokens before this request; 900 is the most');
  });

  it('expects answers as long as they usually are, or as their bound', () => {
    const body = { model: MODEL, choiceCount: 2, prompt: { kind: 'text', text: 'a' } } as const;
    expect(admission().expectedTokens({ ...body, stopping: {} }, 30)).toBe(230);
    expect(admission().expectedTokens({ ...body, stopping: { maxTokens: 10 } }, 30)).toBe(50);
    expect(admission({}, new QueueEstimate()).expectedTokens({ ...body, stopping: {} }, 30)).toBe(1_030);
  });

  it('lets nobody in at a worse place than it told another is too far', () => {
    const loads = fc.record({
      ...{ runningCount: fc.nat(16), maxRunningCount: fc.nat(16), waitingCount: fc.nat(20), waitingTokens: fc.nat(5_000) },
      ...{ prefillTokensPerSecond: fc.nat(2_000), decodeTokensPerSecond: fc.nat(500) },
    });
    fc.assert(
      fc.property(loads, fc.nat(60_000), fc.integer({ min: 1, max: 100_000 }), (load, maxWaitMs, maxQueuedTokens) => {
        const estimate = measured();
        const one = admission({ maxWaitMs, maxQueuedTokens }, estimate);
        const most = one.maxAheadCount(job, load);
        const waitMs = (ahead: number) => estimate.waitMs({ model: MODEL, position: ahead + 1, promptTokensBound: 0 }, load) ?? 0;
        if (most >= 0) expect(waitMs(most)).toBeLessThanOrEqual(maxWaitMs);
        const next = most + 1;
        expect(waitMs(next) > maxWaitMs || 300 * next + 300 > maxQueuedTokens || next > 1_000_000).toBe(true);
        const { retryAfterSeconds } = one.refusal(job, next, load);
        expect(retryAfterSeconds).toBeGreaterThanOrEqual(1);
        expect(retryAfterSeconds).toBeLessThanOrEqual(3_600);
      }),
    );
  });
});
