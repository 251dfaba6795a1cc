/**
 * LoadClient: one streamed chat completion as a client sees it: when each piece came, how it ended, what it cost. It only observes:
 * every fault of the stream becomes a line in `faults`, never an exception, so that one bad stream does not hide the others.
 */
import http from 'node:http';
import { SseParser } from '../scripts/sluice/sse-events.ts';

export interface Target {
  /** Base URL up to and with /v1. */
  baseUrl: string;
  apiKey: string;
}

export interface StreamOptions {
  body: Record<string, unknown>;
  /** Besides the usual ones. */
  headers?: Readonly<Record<string, string>>;
  /** The client goes away when this fires; that is not a fault. */
  signal?: AbortSignal;
  /** Called with the number of chunks so far that brought text. */
  onChunk?(chunkCount: number): void;
  /** A stream silent for this long has a fault. */
  silenceMs?: number;
}

/** Times are milliseconds of performance.now(). */
export interface StreamOutcome {
  status: number | undefined;
  startedAt: number;
  endedAt: number;
  /** One entry for each chunk that brought text. */
  chunkTimes: number[];
  text: string;
  /** The text of each choice, by index. */
  choiceTexts: string[];
  finishReasons: string[];
  doneCount: number;
  usage: { promptTokens: number; completionTokens: number; cachedTokens: number } | undefined;
  /** As the batcher measured them. */
  timings: { queueMs: number; prefillMs: number; ttftMs: number } | undefined;
  /** The client left of its own accord. */
  isCut: boolean;
  faults: string[];
}

interface Chunk {
  choices?: { index: number; delta?: { content?: string | null }; finish_reason?: string | null }[];
  usage?: { prompt_tokens: number; completion_tokens: number; prompt_tokens_details?: { cached_tokens?: number } } | null;
  timings?: { queue_ms: number; prefill_ms: number; ttft_ms: number };
  error?: { message: string; code: string | null };
}

const SILENCE_MS = 120_000;
/** A body that is no stream is read up to here, for its message. */
const ERROR_BODY_BYTES = 16_384;

export async function streamChat(target: Target, options: StreamOptions): Promise<StreamOutcome> {
  const outcome: StreamOutcome = {
    status: undefined,
    startedAt: performance.now(),
    endedAt: 0,
    chunkTimes: [],
    text: '',
    choiceTexts: [],
    finishReasons: [],
    doneCount: 0,
    usage: undefined,
    timings: undefined,
    isCut: false,
    faults: [],
  };
  try {
    const response = await post(target, options);
    outcome.status = response.statusCode;
    if (response.statusCode === 200) await readStream(response, outcome, options);
    else outcome.faults.push(`status ${response.statusCode}: ${await readSome(response)}`);
  } catch (error) {
    if (options.signal?.aborted) outcome.isCut = true;
    else outcome.faults.push(error instanceof Error ? error.message : String(error));
  }
  outcome.endedAt = performance.now();
  return outcome;
}

/** A connection of its own for every stream, as independent clients have. */
function post({ baseUrl, apiKey }: Target, options: StreamOptions): Promise<http.IncomingMessage> {
  const text = JSON.stringify({ ...options.body, stream: true, stream_options: { include_usage: true } });
  const { promise, resolve, reject } = Promise.withResolvers<http.IncomingMessage>();
  const request = http.request(`${baseUrl}/chat/completions`, {
    method: 'POST',
    agent: false,
    headers: {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(text),
      authorization: `Bearer ${apiKey}`,
      // An answer that the gateway has kept would measure nothing.
      'x-sluice-cache': 'off',
      ...options.headers,
    },
    ...(options.signal && { signal: options.signal }),
  });
  const silenceMs = options.silenceMs ?? SILENCE_MS;
  request.setTimeout(silenceMs, () => request.destroy(new Error(`nothing came for ${silenceMs} ms`)));
  request.once('response', resolve).on('error', reject);
  request.end(text);
  return promise;
}

async function readStream(response: http.IncomingMessage, outcome: StreamOutcome, { body, onChunk }: StreamOptions): Promise<void> {
  const parser = new SseParser();
  for await (const bytes of response) {
    const now = performance.now();
    for (const event of parser.push(bytes as Buffer)) {
      if (outcome.doneCount > 0) outcome.faults.push(`event after [DONE]: ${event.data.slice(0, 100)}`);
      if (event.data === '[DONE]') outcome.doneCount++;
      else {
        const before = outcome.chunkTimes.length;
        readChunk(JSON.parse(event.data) as Chunk, outcome, now);
        if (outcome.chunkTimes.length > before) onChunk?.(outcome.chunkTimes.length);
      }
    }
  }
  if (parser.remainder.trim() !== '') outcome.faults.push(`ended inside an event: ${parser.remainder.slice(0, 100)}`);
  if (outcome.doneCount !== 1) outcome.faults.push(`${outcome.doneCount} [DONE]`);
  if (outcome.finishReasons.length !== (body.n ?? 1)) outcome.faults.push(`${outcome.finishReasons.length} finish_reason`);
}

function readChunk(chunk: Chunk, outcome: StreamOutcome, now: number): void {
  if (chunk.error) outcome.faults.push(`${chunk.error.code}: ${chunk.error.message}`);
  for (const choice of chunk.choices ?? []) {
    if (choice.delta?.content) {
      outcome.text += choice.delta.content;
      outcome.choiceTexts[choice.index] = (outcome.choiceTexts[choice.index] ?? '') + choice.delta.content;
      outcome.chunkTimes.push(now);
    }
    if (choice.finish_reason) outcome.finishReasons.push(choice.finish_reason);
  }
  if (chunk.timings) {
    const { queue_ms: queueMs, prefill_ms: prefillMs, ttft_ms: ttftMs } = chunk.timings;
    outcome.timings = { queueMs, prefillMs, ttftMs };
  }
  if (chunk.usage) {
    outcome.usage = {
      promptTokens: chunk.usage.prompt_tokens,
      completionTokens: chunk.usage.completion_tokens,
      cachedTokens: chunk.usage.prompt_tokens_details?.cached_tokens ?? 0,
    };
  }
}

async function readSome(response: http.IncomingMessage): Promise<string> {
  let text = '';
  for await (const bytes of response) {
    text += String(bytes);
    if (text.length > ERROR_BODY_BYTES) break;
  }
  return text;
}
