/**
 * SseClient: reads a stream of events as strictly as the strictest client in use: like openai-python it keeps the last id and
 * dispatches an event at each blank line from then on, so that a stray blank line shows as an event without data.
 */

export interface SseEvent {
  id: string | undefined;
  /** Its `event:` field. */
  event?: string;
  data: string;
}

export interface SseStream {
  events: SseEvent[];
  comments: string[];
  /** The bytes as they came. */
  text: string;
}

/** Throws what a client would choke on: an event without data, a line that is no field, bytes that are not UTF-8. */
export function parseSse(text: string): SseStream {
  const events: SseEvent[] = [];
  const comments: string[] = [];
  let data: string[] = [];
  let id: string | undefined;
  let event: string | undefined;
  // What follows the last line end is no line.
  for (const line of text.split('\n').slice(0, -1)) {
    if (line === '') {
      if (data.length === 0 && id === undefined) continue;
      if (data.length === 0) throw new Error('an event without data');
      events.push({ id, data: data.join('\n'), ...(event !== undefined && { event }) });
      data = [];
      event = undefined;
    } else if (line.startsWith(':')) {
      comments.push(line.slice(1).trim());
    } else if (line.startsWith('data: ')) {
      data.push(line.slice(6));
    } else if (line.startsWith('event: ')) {
      event = line.slice(7);
    } else if (line.startsWith('id: ')) {
      id = line.slice(4);
    } else {
      throw new Error(`a line of no known kind: ${line}`);
    }
  }
  return { events, comments, text };
}

/** Throws for a reply that is no stream of events. */
export async function readSse(response: Response): Promise<SseStream> {
  if (!response.headers.get('content-type')?.startsWith('text/event-stream'))
    throw new Error(`${response.status} ${await response.text()}`);
  return parseSse(new TextDecoder('utf-8', { fatal: true }).decode(await response.arrayBuffer()));
}

export interface Chunk {
  id: string;
  object: string;
  created: number;
  model: string;
  choices: {
    index: number;
    delta: { role?: string; content?: string };
    logprobs: { content: { token: string; logprob: number; bytes: number[]; top_logprobs: unknown[] }[] } | null;
    finish_reason: string | null;
  }[];
  usage?: Record<string, unknown> | null;
  timings?: Record<string, number>;
}

/** The chunks before `[DONE]`; throws when there is not exactly one, at the end. */
export function chunksOf(stream: SseStream): Chunk[] {
  const datas = stream.events.map(event => event.data);
  if (datas.length === 0 || datas.indexOf('[DONE]') !== datas.length - 1)
    throw new Error(`[DONE] is not the one last event: ${datas.join('\n')}`);
  return datas.slice(0, -1).map(data => JSON.parse(data) as Chunk);
}

export function textOf(chunks: readonly Chunk[], index = 0): string {
  return chunks.flatMap(chunk => chunk.choices.filter(choice => choice.index === index).map(choice => choice.delta.content ?? '')).join('');
}
