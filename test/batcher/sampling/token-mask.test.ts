import fc from 'fast-check';
import { expect, test } from 'vitest';
import { allowsOnly, copyAllowed, onlyToken } from '../../../batcher/sampling/token-mask.ts';

/** A row, and which of its tokens are allowed: few, most or anything between. */
const cases = fc
  .tuple(
    fc.integer({ min: 1, max: 200 }),
    fc.double({ min: 0, max: 1, noNaN: true }),
    fc.infiniteStream(fc.double({ min: 0, max: 1, noNaN: true })),
  )
  .map(([size, share, random]) => Array.from(random.take(size), draw => draw < share));

function maskOf(allowed: readonly boolean[]) {
  const words = new Uint32Array(Math.ceil(allowed.length / 32));
  for (const [id, is] of allowed.entries()) if (is) words[id >>> 5]! |= 1 << (id & 31);
  return { words, count: allowed.filter(Boolean).length };
}

test('leaves what is allowed as it is and nothing else', () => {
  fc.assert(
    fc.property(cases, fc.nat(40), (allowed, extra) => {
      // A model's logits may go beyond its vocabulary.
      const row = Float32Array.from({ length: allowed.length + extra }, (_, id) => id + 1);
      const edited = new Float32Array(row.length).fill(7);
      copyAllowed(row, maskOf(allowed), edited);
      expect(Array.from(edited)).toEqual(Array.from(row, (logit, id) => (allowed[id] === true ? logit : -Infinity)));
    }),
  );
});

test('knows whether there is any other token', () => {
  fc.assert(
    fc.property(cases, fc.uniqueArray(fc.nat(250), { maxLength: 4 }), (allowed, ids) => {
      const others = [...allowed.keys()].filter(id => allowed[id] && !ids.includes(id));
      expect(allowsOnly(maskOf(allowed), ids)).toBe(others.length === 0);
    }),
  );
});

test('knows the only token', () => {
  fc.assert(
    fc.property(cases, allowed => {
      const ids = [...allowed.keys()].filter(id => allowed[id]);
      expect(onlyToken(maskOf(allowed))).toBe(ids.length === 1 ? ids[0] : undefined);
    }),
  );
});
