/** TextQueue: whose texts are next, and that each is taken once, in order, within the bounds of a run. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { EmbeddingJob } from '../../../batcher/encoder/embedding-job.ts';
import { TextQueue } from '../../../batcher/encoder/text-queue.ts';
import type { ServiceClass } from '../../../shared/job.ts';

const WIDE = { tokens: 1_000, places: 1_000 };

/** Its texts are told apart by their lengths. */
function job(id: string, lengths: readonly number[], { tenant = 't', serviceClass = 'default' as ServiceClass } = {}): EmbeddingJob {
  const made = new EmbeddingJob({
    job: {
      ...{ version: 1, id, model: 'm', tenant, shard: 's', prompt: { kind: 'text', text: 'a' }, sampling: { temperature: 0 } },
      ...{ stopping: {}, choiceCount: 1, serviceClass, submittedAt: 0, task: { kind: 'embed' } },
    },
    attempt: 1,
    clock: () => 0,
  });
  made.open(lengths.map(length => new Array<number>(length).fill(7)));
  return made;
}

function queued(...jobs: EmbeddingJob[]): TextQueue {
  const queue = new TextQueue();
  for (const one of jobs) queue.add(one);
  return queue;
}

const names = (queue: TextQueue, bounds = WIDE) => queue.take(bounds).map(({ job, tokenIds }) => `${job.job.id}${tokenIds.length}`);

describe('whose turn it is', () => {
  test('tenants in turn, and the jobs of each in turn', () => {
    const queue = queued(job('a', [1, 2, 3], { tenant: 'x' }), job('b', [1], { tenant: 'x' }), job('c', [1, 2], { tenant: 'y' }));
    expect(names(queue)).toEqual(['a1', 'c1', 'b1', 'c2', 'a2', 'a3']);
    expect([queue.jobCount, queue.tenantCount, queue.pendingTokens]).toEqual([0, 0, 0]);
  });

  test('a job that comes while a large one is under way is not behind it', () => {
    const queue = queued(job('large', new Array<number>(100).fill(1), { tenant: 'x' }));
    expect(names(queue, { ...WIDE, tokens: 3 })).toEqual(['large1', 'large1', 'large1']);
    queue.add(job('small', [2], { tenant: 'y' }));
    expect(names(queue, { ...WIDE, tokens: 3 })).toEqual(['large1', 'small2']);
  });

  test('a higher class first; what it leaves of a run goes to a lower one', () => {
    const queue = queued(job('f', [1], { serviceClass: 'flex' }), job('d', [1]), job('p', [1, 1], { serviceClass: 'priority' }));
    expect(names(queue)).toEqual(['p1', 'p1', 'd1', 'f1']);
  });
});

describe('the bounds of a run', () => {
  test('tokens', () => {
    const queue = queued(job('a', [3, 3, 3]));
    expect(names(queue, { ...WIDE, tokens: 7 })).toEqual(['a3', 'a3']);
    expect(names(queue, { ...WIDE, tokens: 7 })).toEqual(['a3']);
  });

  test('a text that is longer than the bound goes alone', () => {
    const queue = queued(job('a', [9, 1]));
    expect(names(queue, { ...WIDE, tokens: 5 })).toEqual(['a9']);
    expect(names(queue, { ...WIDE, tokens: 5 })).toEqual(['a1']);
  });

  test('texts times the longest', () => {
    const queue = queued(job('a', [1, 1, 8, 1]));
    expect(names(queue, { ...WIDE, places: 16 })).toEqual(['a1', 'a1']);
    expect(names(queue, { ...WIDE, places: 16 })).toEqual(['a8', 'a1']);
  });
});

test('what is over or was removed is not taken', () => {
  const [first, second] = [job('a', [1, 2]), job('b', [3])];
  const queue = queued(first, second);
  queue.remove(first);
  queue.remove(first);
  expect([queue.jobCount, queue.pendingTokens]).toEqual([1, 3]);
  expect(names(queue)).toEqual(['b3']);
  queue.add(job('c', []));
  expect(queue.jobCount).toBe(0);
});

test('whatever comes and goes, each text is taken once, in order, within the bounds', () => {
  const someJob = fc.record({
    lengths: fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 8 }),
    tenant: fc.constantFrom('x', 'y', 'z'),
    serviceClass: fc.constantFrom<ServiceClass>('priority', 'default', 'flex'),
  });
  const steps = fc.array(fc.oneof(someJob, fc.constant('take' as const), fc.constant('remove' as const)), { maxLength: 40 });
  fc.assert(
    fc.property(steps, some => {
      const queue = new TextQueue();
      const bounds = { tokens: 12, places: 30 };
      const open = new Map<EmbeddingJob, number[]>();
      const take = () => {
        const run = queue.take(bounds);
        const tokens = run.reduce((sum, { tokenIds }) => sum + tokenIds.length, 0);
        const longest = Math.max(0, ...run.map(({ tokenIds }) => tokenIds.length));
        expect(run.length <= 1 || (tokens <= bounds.tokens && longest * run.length <= bounds.places)).toBe(true);
        for (const { job: owner, tokenIds } of run) expect(open.get(owner)!.shift()).toBe(tokenIds.length);
        return run.length;
      };
      for (const [index, step] of some.entries()) {
        if (step === 'take') take();
        else if (step === 'remove') {
          const [victim] = open.keys();
          if (victim === undefined) continue;
          queue.remove(victim);
          open.delete(victim);
        } else {
          const made = job(String(index), step.lengths, step);
          open.set(made, [...step.lengths]);
          queue.add(made);
        }
        const left = [...open.values()];
        expect(queue.pendingTokens).toBe(left.flat().reduce((sum, length) => sum + length, 0));
        expect(queue.jobCount).toBe(left.filter(lengths => lengths.length > 0).length);
      }
      while (take() > 0);
      expect([...open.values()].flat()).toEqual([]);
    }),
  );
});
