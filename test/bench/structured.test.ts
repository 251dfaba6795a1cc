import { expect, test } from 'vitest';
import type { LoopTimes } from '../../bench/loop-workload.ts';
import { faultOf } from '../../bench/structured/schema-run.ts';
import { costOf } from '../../bench/structured.ts';

test('the cost of a structure is what its steps take beside the engine more than free ones do', () => {
  const times = (step: number[], engine: number[]) => ({ step, engine }) as LoopTimes;
  const cost = costOf(8, times([20, 22, 21], [18, 20, 19]), times([24, 23, 30], [21, 20, 27]));
  expect(cost).toMatchObject({ batch: 8, freeMs: 21, structuredMs: 24, addedMs: 1 });
  expect(cost.share).toBeCloseTo(1 / 21);
});

test('an answer that is no value of its schema, or no JSON, is found', () => {
  const schema = { type: 'object', properties: { when: { type: 'string', format: 'date' } }, required: ['when'] };
  expect(faultOf(schema, '{"when":"2026-02-28"}')).toBeUndefined();
  expect(faultOf(schema, '{"when":"2026-02-31"}')).toContain('format');
  expect(faultOf(schema, '{"when":')).toContain('no JSON');
});
