/** The page's reader of event streams: the same events, wherever the bytes are cut. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { readEventStream, type StreamPart } from '../../../gateway/playground/event-stream.ts';

async function partsOf(chunks: Uint8Array[]): Promise<StreamPart[]> {
  const parts: StreamPart[] = [];
  for await (const part of readEventStream(ReadableStream.from(chunks) as ReadableStream<Uint8Array>)) parts.push(part);
  return parts;
}

test('comments, ids of their own, several lines of data, an end in the middle', async () => {
  const text = 'retry: 1000\n: queued\ndata: a\n\nid: 7\ndata: b\ndata:c\n\n\ndata: no id\r\n\r\n:working\nid: 8\ndata: not whole\n';
  expect(await partsOf([new TextEncoder().encode(text)])).toEqual([
    { type: 'comment', text: 'queued' },
    { type: 'event', id: undefined, data: 'a' },
    { type: 'event', id: '7', data: 'b\nc' },
    { type: 'event', id: undefined, data: 'no id' },
    { type: 'comment', text: 'working' },
  ]);
});

test('any text in any pieces', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.string({ unit: 'grapheme' })), fc.array(fc.nat(400)), async (texts, cuts) => {
      const sent = texts.map((text, index): StreamPart => ({ type: 'event', id: String(index), data: JSON.stringify(text) }));
      const bytes = new TextEncoder().encode(
        sent.map(part => (part.type === 'event' ? `: beat\nid: ${part.id}\ndata: ${part.data}\n\n` : '')).join(''),
      );
      const ends = [...new Set(cuts.filter(cut => cut < bytes.length))].sort((a, b) => a - b);
      const chunks = [...ends, bytes.length].map((end, index) => bytes.slice(ends[index - 1] ?? 0, end));
      expect((await partsOf(chunks)).filter(part => part.type === 'event')).toEqual(sent);
    }),
  );
});

test('who reads no further closes the connection', async () => {
  let isClosed = false;
  const body = new ReadableStream<Uint8Array>({
    pull: controller => controller.enqueue(new TextEncoder().encode('data: x\n\n')),
    cancel: () => {
      isClosed = true;
    },
  });
  for await (const _part of readEventStream(body)) break;
  expect(isClosed).toBe(true);
});
