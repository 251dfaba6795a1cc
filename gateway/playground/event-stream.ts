/**
 * EventStream: server-sent events as they come, comments too, which a browser's own EventSource keeps to itself; whatever the pieces in
 * which the bytes arrive, each event is given once and whole.
 */

export type StreamPart =
  | { type: 'comment'; text: string }
  /** The id is the event's own: one that has none does not inherit that of the event before it. */
  | { type: 'event'; id: string | undefined; data: string };

/** Ends with the connection, in order or not: an event that was not whole is dropped. Throws what the reading throws. */
export async function* readEventStream(body: ReadableStream<Uint8Array>): AsyncGenerator<StreamPart> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  let id: string | undefined;
  let data: string[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split('\n');
      rest = lines.pop()!;
      for (const line of lines.map(ended => ended.replace(/\r$/, ''))) {
        if (line === '') {
          if (data.length > 0) yield { type: 'event', id, data: data.join('\n') };
          id = undefined;
          data = [];
          continue;
        }
        const [, field, text] = /^([^:]*)(?:: ?(.*))?$/s.exec(line)!;
        if (field === '') yield { type: 'comment', text: text ?? '' };
        else if (field === 'data') data.push(text ?? '');
        else if (field === 'id') id = text ?? '';
      }
    }
  } finally {
    // Whoever reads no further wants no more of it; a connection that is lost cannot be closed.
    await reader.cancel().catch(() => undefined);
  }
}
