import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ContentMark, unguard } from '../../../batcher/model/content-mark.ts';

const LITERALS = ['<|im_start|>', '<|im_end|>', '</s>', '[INST]', '😀!'];
const mark = new ContentMark(LITERALS);
const hostile = fc
  .array(
    fc.oneof(
      fc.constantFrom(...LITERALS, '<|im_', 'end|>', '<', '>', '[IN', 'ST]', ' ', '\n', '\uFDD0', '\uFDD1', '\uFDD2', '😀'),
      fc.string({ unit: 'binary' }),
    ),
  )
  .map(parts => parts.join(''));

describe('the content mark', () => {
  test('comes off without a trace', () => {
    fc.assert(fc.property(hostile, text => unguard(mark.guard(text)) === text));
  });

  test('leaves no control token whole, also across the ends of neighbours and after trimming', () => {
    fc.assert(
      fc.property(fc.array(hostile, { minLength: 1, maxLength: 4 }), texts => {
        const joined = [texts.map(text => mark.guard(text)).join(''), texts.map(text => mark.guard(text).trim()).join('')];
        for (const rendered of joined) for (const literal of LITERALS) expect(rendered).not.toContain(literal);
      }),
    );
  });

  test('leaves no control token that template text would complete', () => {
    for (const literal of LITERALS) {
      for (let cut = 1; cut < literal.length; cut++) {
        expect(mark.guard(literal.slice(0, cut)) + literal.slice(cut)).not.toContain(literal);
        expect(literal.slice(0, cut) + mark.guard(literal.slice(cut))).not.toContain(literal);
      }
    }
  });

  test('does not touch ordinary text', () => {
    expect(mark.guard('A question, with (signs) & 漢字.')).toBe('A question, with (signs) & 漢字.');
  });
});
