import { expect, test } from 'vitest';
import type { LoopTimes } from '../../bench/loop-workload.ts';
import { faultOf } from '../../bench/structured/schema-run.ts';
import { costOf } from '../../bench/structured.ts';

test('the cost of a structure is what its steps take beside the engine more than free ones do', () => {
  const times = (step: number[], engine: number[]) => ({ step, engine }) as LoopTimes;
  const free = times([20, 22, 21], [18, 20, 19]);
  const held = times([24, 23, 30], [21, 20, 27]);
  const cost = costOf({ batch: 8, form: 'call' }, [free], [held]);
  expect(cost).toMatchObject({ batch: 8, form: 'call', freeMs: 21, heldMs: 24, addedMs: 1 });
  expect(cost.share).toBeCloseTo(1 / 21);
  // Of several runs the middle one, each beside the free run of its own turn.
  const slow = times([40, 42, 41], [38, 40, 39]);
  const dear = times([29, 28, 35], [21, 20, 27]);
  const repeated = costOf({ batch: 8, form: 'call' }, [free, slow, free], [held, held, dear]);
  expect(repeated.shares.map(share => share.toFixed(3))).toEqual(['0.048', '0.024', '0.286']);
  expect(repeated).toMatchObject({ freeMs: 21, heldMs: 24, addedMs: 1 });
});

test('an answer that is no value of its schema, or no JSON, is found', () => {
  const schema = { type: 'object', properties: { when: { type: 'string', format: 'date' } }, required: ['when'] };
  expect(faultOf(schema, '{"when":"2026-02-28"}')).toBeUndefined();
  expect(faultOf(schema, '{"when":"2026-02-31"}')).toContain('format');
  expect(faultOf(schema, '{"when":')).toContain('no JSON');
});
