/** PartialObject: whatever was cut off, what is left is an object, and nothing in it was not whole. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import '../../property-seed.ts';
import { partialObject } from '../../../gateway/messages/partial-object.ts';

test.each<[json: string, expected: object]>([
  ['', {}],
  ['{', {}],
  ['{}', {}],
  ['{"a":1', {}],
  ['{"a":12,', { a: 12 }],
  ['{"a":12 ', { a: 12 }],
  ['{"a":tru', {}],
  ['{"a":"x', {}],
  ['{"a":"x"', { a: 'x' }],
  ['{"a":"x\\"', {}],
  ['{"a":"x\\""', { a: 'x"' }],
  ['{"a":"x","b', { a: 'x' }],
  ['{"a":"x","b"', { a: 'x' }],
  ['{"a":"x","b":', { a: 'x' }],
  ['{"a":[1,2', { a: [1] }],
  ['{"a":[1,{"b":"c"', { a: [1, { b: 'c' }] }],
  ['{"a":{"b":{', { a: { b: {} } }],
  [' {"a" : {"b" : null} , ', { a: { b: null } }],
  // No objects.
  ['[1,2]', {}],
  ['null', {}],
  ['7', {}],
  ['"x"', {}],
  ['hello {"a":1}', {}],
  ['{"a":1}}', { a: 1 }],
  ['{a:1,', {}],
  ['{"a":]', {}],
])('%s', (json, expected) => {
  expect(partialObject(json)).toEqual(expected);
});

test('the whole of any object, and of any beginning an object that grows with it', () => {
  const anyObject = fc.dictionary(fc.string({ maxLength: 6 }), fc.jsonValue({ maxDepth: 2 }), { maxKeys: 5 });
  fc.assert(
    fc.property(anyObject, fc.integer({ min: 0, max: 2 }), (object, space) => {
      const json = JSON.stringify(object, null, space);
      const keys = Object.keys(JSON.parse(json) as object);
      expect(partialObject(json)).toEqual(JSON.parse(json));
      let count = 0;
      const step = Math.ceil(json.length / 200);
      for (let length = 0; length < json.length; length += step) {
        const own = Object.keys(partialObject(json.slice(0, length)));
        if (own.length < count || own.some(key => !keys.includes(key))) throw new Error(`${json.slice(0, length)} came to ${own}`);
        count = own.length;
      }
    }),
    { numRuns: 100 },
  );
});

test('a text of a million characters that does not end', () => {
  expect(partialObject(`{"a":1,"b":"${'\\\\x'.repeat(500_000)}`)).toEqual({ a: 1 });
});
