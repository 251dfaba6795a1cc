/** SseFrame: what a client that splits text by its language's own notion of a line makes of it. */
import { expect, test } from 'vitest';
import { errorFrame, framesWithId } from '../../gateway/sse-frame.ts';
import { ApiError } from '../../shared/errors.ts';

/** As Python's str.splitlines has it, but for separators that JSON escapes. */
const ANY_LINE_END = /\r\n|[\n\r\u0085\u2028\u2029]/;

test('no end of a line stands within an event, whatever the answer says', () => {
  const text = 'a\u2028b\u2029c\u0085d\ne\r\nf';
  const frame = framesWithId(3, [`data: ${JSON.stringify({ text })}`]);
  const lines = frame.split(ANY_LINE_END);
  expect(lines).toEqual(['id: 3', expect.stringContaining('data: '), '', '']);
  expect(JSON.parse(lines[1]!.slice('data: '.length))).toEqual({ text });
});

test('nor within an error', () => {
  const lines = errorFrame(new ApiError('generation_failed', 'a\u2028b'), undefined).split(ANY_LINE_END);
  expect(lines).toHaveLength(3);
  expect(JSON.parse(lines[0]!.slice('data: '.length))).toMatchObject({ error: { message: 'a\u2028b' } });
});
