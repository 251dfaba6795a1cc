/** Means over jobs that come and go. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type JobLength, PlacedJobs } from '../../shared/placed-jobs.ts';

test('the mean is that of the jobs that are there, whatever came and went', () => {
  const act = fc.record({
    isAdded: fc.boolean(),
    model: fc.constantFrom('a', 'b'),
    id: fc.nat(5),
    tokens: fc.nat(1_000),
    promptTokens: fc.nat(500),
  });
  fc.assert(
    fc.property(fc.array(act), acts => {
      const placed = new PlacedJobs();
      const expected = { a: new Map<string, JobLength>(), b: new Map<string, JobLength>() };
      for (const { isAdded, model, id, tokens, promptTokens } of acts) {
        const jobs = expected[model];
        if (isAdded) {
          placed.add(model, String(id), { tokens, promptTokens });
          jobs.set(String(id), { tokens, promptTokens });
        } else {
          placed.remove(model, String(id));
          jobs.delete(String(id));
        }
        const mean = (of: (length: JobLength) => number) => [...jobs.values()].reduce((sum, length) => sum + of(length), 0) / jobs.size;
        const all = { tokens: mean(length => length.tokens), promptTokens: mean(length => length.promptTokens) };
        expect(placed.mean(model)).toEqual(jobs.size === 0 ? undefined : all);
      }
    }),
  );
});
