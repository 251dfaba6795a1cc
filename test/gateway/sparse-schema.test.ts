/** SparseSchema: of any body it says what the whole schema says, whichever fields the body has. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { ChatBody } from '../../gateway/chat-request.ts';
import { SparseSchema } from '../../gateway/sparse-schema.ts';

test('says of any chat body what the whole schema says, more kinds of bodies than are kept among them', () => {
  const sparse = new SparseSchema(ChatBody);
  const value = fc.oneof(fc.constantFrom(null, true, 0, 1, 0.5, '', 'user', 'text'), fc.jsonValue({ maxDepth: 2 }));
  const message = fc.record({ role: fc.constantFrom('system', 'user', 'assistant'), content: value });
  const fields = fc.dictionary(fc.oneof(fc.constantFrom(...Object.keys(ChatBody.shape)), fc.string()), value, { maxKeys: 6 });
  const bodies = fc.tuple(fc.record({ model: value, messages: fc.array(message) }, { requiredKeys: [] }), fields);
  fc.assert(
    fc.property(bodies, ([usual, more]) => {
      const body = { ...more, ...usual };
      expect(sparse.safeParse(body)).toEqual(ChatBody.safeParse(body, { reportInput: true }));
    }),
    { numRuns: 500 },
  );
});

test('checks between fields hold, also where one of them is absent', () => {
  const schema = z.looseObject({ low: z.number().optional(), high: z.number().optional() }).superRefine((body, context) => {
    if (body.high === undefined && body.low !== undefined) context.addIssue({ code: 'custom', path: ['high'], message: 'wanted' });
  });
  const sparse = new SparseSchema(schema);
  expect(sparse.safeParse({ low: 1 }).error?.issues).toMatchObject([{ path: ['high'], message: 'wanted' }]);
  expect(sparse.safeParse({}).success).toBe(true);
});
