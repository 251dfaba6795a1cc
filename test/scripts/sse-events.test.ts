import fc from 'fast-check';
import { expect, test } from 'vitest';
import { SseParser } from '../../scripts/sluice/sse-events.ts';

const STREAM = ': ping\r\n\r\nid: 1\ndata: {"a":"漢字😀"}\n\nevent: x\ndata: one\rdata:two\r\rdata: [DONE]\n\n';

function parse(chunks: readonly Uint8Array[]) {
  const parser = new SseParser();
  return { events: chunks.flatMap(chunk => parser.push(chunk)), parser };
}

test('events are the same wherever the chunks are cut, also inside a character or a line end', () => {
  const bytes = new TextEncoder().encode(STREAM);
  const whole = parse([bytes]).events;
  expect(whole.map(event => event.data)).toEqual(['{"a":"漢字😀"}', 'one\ntwo', '[DONE]']);
  expect(whole[0]!.id).toBe('1');
  expect(whole[1]!.event).toBe('x');
  fc.assert(
    fc.property(fc.uniqueArray(fc.nat(bytes.length), { maxLength: 12 }), places => {
      const edges = [0, ...places.toSorted((a, b) => a - b), bytes.length];
      const chunks = edges.slice(1).map((edge, i) => bytes.subarray(edges[i], edge));
      expect(parse(chunks).events).toEqual(whole);
    }),
  );
});

test('a comment is counted and makes no event; what is cut off stays visible', () => {
  const { events, parser } = parse([new TextEncoder().encode(': ping\n\n: ping\n\ndata: half\n')]);
  expect(events).toEqual([]);
  expect(parser.commentCount).toBe(2);
  expect(parser.remainder).toBe('half');
});

test('bytes that are no UTF-8 are refused', () => {
  expect(() => parse([new Uint8Array([0x64, 0xff, 0x0a])])).toThrow();
});
