/**
 * ChatAnswer: one streamed answer, piece by piece, with what it cost at its end. A connection that breaks is taken up again where it was, as
 * long as the gateway keeps the answer; who stops it stops the work too.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { CommandError } from './command-error.ts';
import type { Message } from './conversation.ts';
import { ask, RefusedCall } from './gateway-call.ts';
import type { GatewayTarget } from './gateway-target.ts';
import { SseParser } from './sse-events.ts';

export interface AnswerOptions {
  target: GatewayTarget;
  messages: readonly Message[];
  /** Fields of the request besides. */
  parameters: Readonly<Record<string, unknown>>;
  signal: AbortSignal;
  /** A piece of what the model says to itself first. */
  onReasoning(text: string): void;
  /** Where it stands while there is nothing to say: `queued position=3 eta_ms=900`. */
  onNote(note: string): void;
  /** Its connection broke and is made again. */
  onBreak(): void;
}

export interface AnswerEnd {
  model: string;
  finishReason: string | undefined;
  promptTokens: number;
  completionTokens: number;
  /** From the question to the first piece. */
  firstMs: number;
  /** Of this answer, from its first piece to its last; undefined where that is no time. */
  tokensPerSecond: number | undefined;
}

interface Chunk {
  model: string;
  choices: { delta: { content?: string; reasoning_content?: string }; finish_reason: string | null }[];
  usage?: { prompt_tokens: number; completion_tokens: number } | null;
  error?: { message: string; code: string };
}

/** As long as the gateway lets an answer go on without its client. */
const PATIENCE_MS = 30_000;
const PAUSE_MS = 500;
const DONE = '[DONE]';
const NOTHING_MORE = 204;

export class ChatAnswer {
  readonly #options: AnswerOptions;
  readonly #startedAt = performance.now();
  #streamId: string | undefined;
  #seenId: string | undefined;
  #firstAt: number | undefined;
  #lastAt = 0;
  /** Of the first piece, which took no time that could be told. */
  #firstTokens = 0;
  #isWhole = false;
  #model = '';
  #finishReason: string | undefined;
  #usage = { prompt_tokens: 0, completion_tokens: 0 };

  constructor(options: AnswerOptions) {
    this.#options = options;
  }

  /** Pieces of text. Throws CommandError when there is no answer or not the whole, and an AbortError when it was stopped. */
  async *pieces(): AsyncGenerator<string> {
    try {
      yield* this.#read(await this.#begin());
      let brokenAt = performance.now();
      while (!this.#isWhole) {
        if (performance.now() - brokenAt > PATIENCE_MS)
          throw new CommandError('The answer broke off, and the gateway does not come back.', 1);
        this.#options.onBreak();
        await sleep(PAUSE_MS, undefined, { signal: this.#options.signal });
        const response = await this.#goOn();
        if (response === undefined) continue;
        const before = this.#seenId;
        yield* this.#read(response);
        if (this.#seenId !== before) brokenAt = performance.now();
      }
    } catch (thrown) {
      if (this.#options.signal.aborted) await this.#cancel();
      throw thrown;
    }
  }

  /** When all pieces have come. */
  get end(): AnswerEnd {
    const { prompt_tokens: promptTokens, completion_tokens: completionTokens } = this.#usage;
    const firstAt = this.#firstAt ?? performance.now();
    const seconds = (this.#lastAt - firstAt) / 1000;
    const counted = completionTokens - this.#firstTokens;
    return {
      model: this.#model,
      finishReason: this.#finishReason,
      promptTokens,
      completionTokens,
      firstMs: firstAt - this.#startedAt,
      tokensPerSecond: seconds > 0 && counted > 0 ? counted / seconds : undefined,
    };
  }

  async #begin(): Promise<Response> {
    const { target, messages, parameters, signal } = this.#options;
    const body = { ...parameters, messages, stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } };
    const response = await ask(target, '/v1/chat/completions', {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-sluice-resumable': 'true' },
      body: JSON.stringify(body),
      signal,
    });
    this.#streamId = response.headers.get('x-sluice-stream-id') ?? undefined;
    return response;
  }

  /** Undefined while the gateway cannot go on with it; throws what it says when there is nothing to go on with. */
  async #goOn(): Promise<Response | undefined> {
    const { target, signal } = this.#options;
    const headers: Record<string, string> = this.#seenId === undefined ? {} : { 'last-event-id': this.#seenId };
    try {
      const response = await ask(target, `/v1/streams/${this.#streamId}`, { headers, signal });
      // Nothing came after what was seen: only the mark of the end was lost.
      if (response.status === NOTHING_MORE) this.#isWhole = true;
      return response;
    } catch (thrown) {
      if (thrown instanceof RefusedCall && thrown.isPassing) return undefined;
      throw thrown;
    }
  }

  async *#read(response: Response): AsyncGenerator<string> {
    const parser = new SseParser(comment => this.#options.onNote(comment));
    try {
      for await (const bytes of response.body ?? []) {
        let text = '';
        for (const { data, id } of parser.push(bytes)) {
          this.#seenId = id ?? this.#seenId;
          text += this.#take(data);
        }
        if (text !== '') yield text;
      }
    } catch (thrown) {
      if (this.#options.signal.aborted || thrown instanceof CommandError) throw thrown;
      // The connection broke.
    }
  }

  #take(data: string): string {
    if (data === DONE) {
      this.#isWhole = true;
      return '';
    }
    const chunk = JSON.parse(data) as Chunk;
    if (chunk.error !== undefined) throw new CommandError(`${chunk.error.message} (${chunk.error.code})`, 1);
    const [choice] = chunk.choices;
    this.#model = chunk.model;
    this.#finishReason = choice?.finish_reason ?? this.#finishReason;
    if (chunk.usage) this.#usage = chunk.usage;
    const { content: text = '', reasoning_content: reasoning = '' } = choice?.delta ?? {};
    if (reasoning !== '') this.#options.onReasoning(reasoning);
    if (text === '' && reasoning === '') return text;
    this.#lastAt = performance.now();
    if (this.#firstAt === undefined) {
      this.#firstAt = this.#lastAt;
      this.#firstTokens = chunk.usage?.completion_tokens ?? 1;
    }
    return text;
  }

  /** A resumable answer would go on for a while for nobody. */
  async #cancel(): Promise<void> {
    if (this.#streamId === undefined || this.#isWhole) return;
    const signal = AbortSignal.timeout(PAUSE_MS);
    await ask(this.#options.target, `/v1/streams/${this.#streamId}`, { method: 'DELETE', signal }).catch(() => undefined);
  }
}
