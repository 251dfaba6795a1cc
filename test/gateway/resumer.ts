/** Resumer: reads a stream piece by piece, leaves it where a test says, and comes back for the rest, as a client on a bad line does. */
import type { GatewayServer } from '../gateway-server.ts';
import { chunksOf, parseSse, type SseStream } from './sse-client.ts';

export interface Part {
  id: string;
  token: string;
  /** Of the last event that was read whole; undefined before the first. */
  lastId: string | undefined;
  stream: SseStream;
}

/** Reads until `isEnough`, or to the end, and leaves. What was not whole counts as not read. */
export async function readPart(response: Response, isEnough: (stream: SseStream) => boolean = () => false): Promise<Part> {
  if (!response.headers.get('content-type')?.startsWith('text/event-stream'))
    throw new Error(`${response.status} ${await response.text()}`);
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const reader = response.body!.getReader();
  let text = '';
  let stream = wholeEvents(text);
  while (!isEnough(stream)) {
    // A connection that breaks is what these tests are about.
    const { done, value } = await reader.read().catch(() => ({ done: true, value: undefined }));
    if (done) break;
    text += decoder.decode(value, { stream: true });
    stream = wholeEvents(text);
  }
  await reader.cancel().catch(() => undefined);
  return {
    id: response.headers.get('x-sluice-stream-id')!,
    token: response.headers.get('x-sluice-stream-token')!,
    lastId: stream.events.findLast(event => event.id !== undefined)?.id,
    stream,
  };
}

function wholeEvents(text: string): SseStream {
  return parseSse(text.slice(0, text.lastIndexOf('\n\n') + 2).replace(/^retry: \d+\n/m, ''));
}

export function streamUrl(gateway: GatewayServer, id: string, query = ''): string {
  return `${gateway.url}/v1/streams/${id}${query}`;
}

/** GET /v1/streams/{id} with the development key. */
export function resume(gateway: GatewayServer, id: string, lastId: string | undefined, init: RequestInit = {}): Promise<Response> {
  return fetch(streamUrl(gateway, id), {
    ...init,
    headers: { authorization: `Bearer ${gateway.key}`, ...(lastId !== undefined && { 'last-event-id': lastId }), ...init.headers },
  });
}

/** What several parts say together. Throws when an event came twice, or one is missing. */
export function joinParts(parts: readonly Part[]): { text: string; datas: string[] } {
  const events = parts.flatMap(part => part.stream.events);
  const joined: SseStream = { events, comments: [], text: '' };
  const ids = events.flatMap(event => (event.id === undefined ? [] : Number(event.id)));
  if (ids.some((id, index) => index > 0 && id < ids[index - 1]!)) throw new Error(`ids go back: ${ids}`);
  const chunks = chunksOf(joined);
  return {
    text: chunks.flatMap(chunk => chunk.choices.map(choice => choice.delta.content ?? '')).join(''),
    datas: events.map(event => event.data),
  };
}
