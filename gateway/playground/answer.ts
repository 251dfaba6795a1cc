/**
 * Answer: one streamed answer, from the request to its end, over as many connections as it takes; what its text holds came in order,
 * each piece once.
 *
 *   opening ──▶ waiting ──▶ running ──▶ finished | failed | stopped
 *                  ▲   ╲       ╱
 *                  └── reconnecting ──tries used up, page reloaded──▶ lost ──resume()──▶ reconnecting
 */
import { ApiFault, faultOf } from './api-fault.ts';
import type { ChatRequest } from './chat-request.ts';
import { readEventStream } from './event-stream.ts';
import { cancelStream, openChat, rejoinStream, type StreamHandle } from './gateway-client.ts';
import { describeQueueNote, parseQueueNote } from './queue-note.ts';

export type AnswerState = 'opening' | 'waiting' | 'running' | 'reconnecting' | 'lost' | 'finished' | 'failed' | 'stopped';

/** Plain data, so that a reloaded page can go on with it. */
export interface AnswerRecord {
  state: AnswerState;
  /** Up to and with the event `lastId`. */
  text: string;
  /** What the model said to itself before, likewise; absent where it does not. */
  reasoning?: string;
  lastId: string | undefined;
  /** Undefined until the gateway has taken the request, and for an answer that it had kept. */
  stream: StreamHandle | undefined;
  /** Tokens of the answer so far. */
  tokenCount: number;
  /** Milliseconds from sending to the first text, seen from here. */
  firstTextMs: number | undefined;
  /** What is going on, or how it ended. */
  note: string;
  finish: AnswerFinish | undefined;
}

export interface AnswerFinish {
  reason: string;
  promptTokens: number;
  cachedTokens: number;
  /** Measured by the batcher, from this answer's first token to its last. */
  tokensPerSecond: number | undefined;
}

export interface AnswerListener {
  /** Text or state has changed. */
  changed(): void;
  /** So many tokens more have arrived. */
  tokens(count: number): void;
}

const OPEN_STATES: ReadonlySet<AnswerState> = new Set(['opening', 'waiting', 'running', 'reconnecting']);
/** One after the other without a single event in between. */
const RECONNECT_TRIES = 5;
const RECONNECT_STEP_MS = 200;
const LOST_NOTE = 'Not connected. The gateway goes on with an answer for half a minute, and keeps a finished one for ten';

export class Answer {
  readonly record: AnswerRecord;
  readonly #listener: AnswerListener;
  #connection = new AbortController();
  /** Text behind the last id: it comes again should the connection break here. */
  #pending = '';
  #pendingReasoning = '';
  /** Tokens that were reported; the gateway tells sums. */
  #reported: number;

  constructor(listener: AnswerListener, record = newRecord()) {
    this.#listener = listener;
    this.record = record;
    this.#reported = record.tokenCount;
    // Of an earlier page: its connection is gone.
    if (!this.isOpen) return;
    record.state = record.stream === undefined ? 'failed' : 'lost';
    record.note = record.stream === undefined ? 'The page was left before the gateway had taken it' : LOST_NOTE;
  }

  get isOpen(): boolean {
    return OPEN_STATES.has(this.record.state);
  }

  get canResume(): boolean {
    return this.record.state === 'lost';
  }

  /** Resolves when the answer is no longer open, however it ended. */
  async send(request: ChatRequest, key: string): Promise<void> {
    const sentAt = performance.now();
    this.#set('opening', 'Sending');
    await this.#follow(signal => openChat(request, { key, signal }), sentAt);
  }

  async resume(): Promise<void> {
    if (!this.canResume) return;
    this.#set('reconnecting', 'Resuming');
    await this.#follow(signal => this.#rejoin(signal));
  }

  /** With a key the gateway is told as well, so that it computes no more of it. */
  async stop(key: string): Promise<void> {
    const { stream } = this.record;
    this.#connection.abort();
    this.#settle('stopped', key === '' ? 'Stopped here; without a key the gateway goes on for half a minute' : 'Stopped');
    if (stream === undefined || key === '') return;
    try {
      await cancelStream(stream.id, key);
    } catch (error) {
      this.#settle('stopped', `Stopped here; the gateway was not reached: ${messageOf(error)}`);
    }
  }

  async #follow(connect: (signal: AbortSignal) => Promise<Response>, sentAt?: number): Promise<void> {
    this.#connection = new AbortController();
    const { signal } = this.#connection;
    let opening = connect;
    for (let tries = 1; ; tries++) {
      const idBefore = this.record.lastId;
      const lostBy = await this.#read(opening, { signal, sentAt });
      if (lostBy === undefined || signal.aborted) return;
      // What has no id will come again.
      this.#pending = '';
      this.#pendingReasoning = '';
      if (this.record.stream === undefined) return this.#settle('failed', `The gateway was not reached: ${lostBy}`);
      if (this.record.lastId !== idBefore) tries = 1;
      if (tries > RECONNECT_TRIES) return this.#settle('lost', LOST_NOTE);
      this.#set('reconnecting', `Connection lost (${lostBy}); trying again`);
      await pause(RECONNECT_STEP_MS * 2 ** tries, signal);
      if (signal.aborted) return;
      opening = again => this.#rejoin(again);
    }
  }

  #rejoin(signal: AbortSignal): Promise<Response> {
    return rejoinStream(this.record.stream!, this.record.lastId, signal);
  }

  /** Reads one connection. Undefined when the answer is over, else what became of the connection. */
  async #read(
    connect: (signal: AbortSignal) => Promise<Response>,
    options: { signal: AbortSignal; sentAt: number | undefined },
  ): Promise<string | undefined> {
    try {
      const response = await connect(options.signal);
      if (response.status === 204) return this.#settle('finished', '');
      if (!response.ok) throw await faultOf(response);
      return (await this.#readStream(response, options.sentAt)) ? undefined : 'it ended early';
    } catch (error) {
      const isFinal = error instanceof ApiFault && (!error.isPassing || this.record.stream === undefined);
      if (isFinal) return this.#fail(error);
      return messageOf(error);
    }
  }

  /** Whether the answer has ended; false when only the connection has. */
  async #readStream(response: Response, sentAt: number | undefined): Promise<boolean> {
    const id = response.headers.get('x-sluice-stream-id');
    const token = response.headers.get('x-sluice-stream-token');
    if (id !== null && token !== null) this.record.stream = { id, token };
    const note = response.headers.get('x-sluice-cache') === 'hit' ? 'From the response cache' : '';
    this.#set('waiting', note || 'Connected');
    for await (const part of readEventStream(response.body!)) {
      if (part.type === 'comment') {
        this.#hear(part.text);
        continue;
      }
      if (part.data === '[DONE]') {
        this.#settle('finished', note);
        return true;
      }
      const chunk = JSON.parse(part.data) as Chunk;
      if (chunk.error !== undefined) {
        const fault = new ApiFault(chunk);
        // With an id it is the request that has ended, without one only this connection.
        if (part.id === undefined) throw fault;
        this.#fail(fault);
        return true;
      }
      this.#take(chunk, part.id);
      if (sentAt !== undefined && this.text !== '') this.record.firstTextMs ??= performance.now() - sentAt;
      this.#listener.changed();
    }
    return false;
  }

  /** All text that has come. */
  get text(): string {
    return this.record.text + this.#pending;
  }

  /** The same of its reasoning. */
  get reasoning(): string {
    return (this.record.reasoning ?? '') + this.#pendingReasoning;
  }

  #take(chunk: Chunk, id: string | undefined): void {
    const [choice] = chunk.choices;
    const text = choice?.delta.content ?? '';
    const reasoning = choice?.delta.reasoning_content ?? '';
    if (text !== '') this.#set('running', '');
    else if (reasoning !== '') this.#set('running', 'Reasoning');
    this.#pending += text;
    this.#pendingReasoning += reasoning;
    if (chunk.usage) this.#count(chunk.usage.completion_tokens);
    this.#noteFinish(chunk);
    if (id === undefined) return;
    this.#keepPending();
    this.record.lastId = id;
  }

  /** A comment. While text comes, that it does is seen. */
  #hear(comment: string): void {
    const note = parseQueueNote(comment);
    if (note !== undefined && this.record.state === 'waiting') this.#set('waiting', describeQueueNote(note));
  }

  #count(tokenCount: number): void {
    this.record.tokenCount = tokenCount;
    if (tokenCount > this.#reported) this.#listener.tokens(tokenCount - this.#reported);
    this.#reported = Math.max(this.#reported, tokenCount);
  }

  #noteFinish({ choices, usage, timings }: Chunk): void {
    const reason = choices[0]?.finish_reason ?? this.record.finish?.reason;
    if (reason === undefined || reason === null) return;
    this.record.finish = {
      reason,
      promptTokens: usage?.prompt_tokens ?? 0,
      cachedTokens: usage?.prompt_tokens_details?.cached_tokens ?? 0,
      // 0 for an answer of one token.
      tokensPerSecond: timings?.decode_tokens_per_second || undefined,
    };
  }

  #fail(fault: ApiFault): undefined {
    this.#settle('failed', [fault.message, fault.details].filter(Boolean).join(' — '));
  }

  #settle(state: AnswerState, note: string): undefined {
    this.#keepPending();
    this.#set(state, note);
  }

  #keepPending(): void {
    this.record.text += this.#pending;
    if (this.#pendingReasoning !== '') this.record.reasoning = this.reasoning;
    this.#pending = '';
    this.#pendingReasoning = '';
  }

  #set(state: AnswerState, note: string): void {
    if (this.record.state === state && this.record.note === note) return;
    this.record.state = state;
    this.record.note = note;
    this.#listener.changed();
  }
}

function newRecord(): AnswerRecord {
  return {
    ...{ state: 'opening', text: '', lastId: undefined, stream: undefined, tokenCount: 0 },
    ...{ firstTextMs: undefined, note: '', finish: undefined },
  };
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** What a chunk of a chat completion has, as far as it is shown; or an error in its place. */
interface Chunk {
  error?: unknown;
  choices: { delta: { content?: string | null; reasoning_content?: string }; finish_reason: string | null }[];
  usage?: { prompt_tokens: number; completion_tokens: number; prompt_tokens_details?: { cached_tokens: number } } | null;
  timings?: { decode_tokens_per_second: number };
}
