/**
 * ResumingClient: one seeded chat request as a client sends it who wants its answer whatever breaks: with an Idempotency-Key, so that asking again
 * makes no second job; resumed by Last-Event-ID when a connection breaks; asked again after a refusal, when the refusal says so.
 * It only observes: what the reader saw is in the outcome, in the order in which it came.
 */
import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { SseParser } from '../../scripts/sluice/sse-events.ts';
import type { Target } from '../load-client.ts';

export interface ChaosRequest {
  /** Told apart from every other request, also of other runs. */
  key: string;
  body: Record<string, unknown>;
  isStreamed: boolean;
  /** The client goes away after so many events and does not come back. */
  leavesAfter?: number | undefined;
}

export interface ChaosOutcome {
  /** Text of each choice as the reader has it at the end; its calls behind it, each on a line as `name(arguments`. */
  texts: string[];
  finishReasons: (string | undefined)[];
  /** Of all choices. */
  callCount: number;
  isWhole: boolean;
  /** It went away on purpose. */
  hasLeft: boolean;
  /** Connections after the first, and refusals that told to wait. */
  resumeCount: number;
  refusalCount: number;
  /** From the first text to the last, ms: the longest time without an event. */
  longestPauseMs: number;
  /** What must never happen: an event twice or out of order, an error in the answer, an answer that never came. */
  faults: string[];
}

/** Without an answer for this long it is lost. */
const PATIENCE_MS = 120_000;
/** A connection that is silent for this long is given up; heartbeats come every two seconds. */
const SILENCE_MS = 20_000;
const RETRY_MS = 250;
const LONGEST_WAIT_MS = 2_000;

interface Said {
  content?: string | null;
  tool_calls?: { index?: number; id?: string; function?: { name?: string; arguments?: string } }[];
}

interface Chunk {
  choices?: { index: number; delta?: Said; message?: Said; finish_reason?: string | null }[];
  error?: { message: string; code: string | null };
}

/** The server said no for now. */
class Refused extends Error {
  readonly waitMs: number;

  constructor(waitMs: number) {
    super('refused');
    this.waitMs = waitMs;
  }
}

export async function askUntilAnswered(target: Target, request: ChaosRequest): Promise<ChaosOutcome> {
  const reader = new Reader(request);
  const giveUpAt = Date.now() + PATIENCE_MS;
  while (!reader.isOver && Date.now() < giveUpAt) {
    try {
      await ask(target, request, reader);
      if (!reader.isOver) reader.outcome.resumeCount += 1;
    } catch (error) {
      if (error instanceof Refused) {
        reader.outcome.refusalCount += 1;
        await sleep(error.waitMs);
        continue;
      }
      reader.outcome.resumeCount += 1;
    }
    reader.connectionBroke();
    if (!reader.isOver) await sleep(RETRY_MS);
  }
  if (!reader.isOver) reader.outcome.faults.push(`no answer after ${PATIENCE_MS / 1000} s`);
  return reader.outcome;
}

/** One connection, to its end. Throws when it breaks. */
async function ask(target: Target, request: ChaosRequest, reader: Reader): Promise<void> {
  const { streamId, lastId } = reader;
  const resumes = request.isStreamed && streamId !== undefined && lastId !== undefined;
  const response = await send(target, {
    method: resumes ? 'GET' : 'POST',
    path: resumes ? `/streams/${streamId}` : '/chat/completions',
    headers: resumes ? { 'last-event-id': lastId } : { 'idempotency-key': request.key, 'x-sluice-resumable': 'true' },
    ...(!resumes && { body: JSON.stringify({ ...request.body, stream: request.isStreamed }) }),
  });
  const status = response.statusCode!;
  if (status === 204) {
    response.resume();
    reader.ended();
    return;
  }
  if (status !== 200) {
    const text = await textOf(response);
    if (status === 429 || status === 503) throw new Refused(waitOf(response));
    reader.fails(`status ${status}: ${text.slice(0, 300)}`);
    return;
  }
  const id = response.headers['x-sluice-stream-id'];
  if (typeof id === 'string') reader.streamId = id;
  if (!request.isStreamed) {
    reader.whole(JSON.parse(await textOf(response)) as Chunk);
    return;
  }
  const parser = new SseParser();
  for await (const bytes of response) {
    for (const event of parser.push(bytes as Buffer)) reader.event(event.data, event.id);
    if (reader.isOver) response.destroy();
    if (reader.isOver) return;
  }
}

/** What the client has, and what it knows to be complete: frames behind the last id are told again after a break. */
class Reader {
  readonly outcome: ChaosOutcome = {
    texts: [],
    finishReasons: [],
    callCount: 0,
    isWhole: false,
    hasLeft: false,
    resumeCount: 0,
    refusalCount: 0,
    longestPauseMs: 0,
    faults: [],
  };
  readonly #request: ChaosRequest;
  streamId: string | undefined;
  lastId: string | undefined;
  isOver = false;
  #pending: Chunk[] = [];
  #lastEventAt: number | undefined;
  #eventCount = 0;
  /** Of the calls of each choice. */
  readonly #callIds: string[][] = [];

  constructor(request: ChaosRequest) {
    this.#request = request;
  }

  event(data: string, id: string | undefined): void {
    if (this.isOver) return;
    const now = performance.now();
    if (data === '[DONE]') {
      this.#commit();
      this.ended();
      return;
    }
    const chunk = JSON.parse(data) as Chunk;
    if (chunk.error) {
      // An error with an id of its own ended the job; one without ended this connection only.
      if (id !== undefined && id !== this.lastId) this.fails(`${chunk.error.code}: ${chunk.error.message}`);
      return;
    }
    this.#pending.push(chunk);
    // An id stays the parser's last one for frames that carry none of their own.
    if (id === undefined || id === this.lastId) return;
    if (this.lastId !== undefined && Number(id) <= Number(this.lastId)) this.outcome.faults.push(`event ${id} after ${this.lastId}`);
    this.lastId = id;
    this.#commit();
    if (this.#lastEventAt !== undefined) this.outcome.longestPauseMs = Math.max(this.outcome.longestPauseMs, now - this.#lastEventAt);
    this.#lastEventAt = now;
    this.#eventCount += 1;
    if (this.#eventCount >= (this.#request.leavesAfter ?? Number.POSITIVE_INFINITY)) {
      this.outcome.hasLeft = true;
      this.isOver = true;
    }
  }

  whole(reply: Chunk): void {
    for (const choice of reply.choices ?? []) {
      this.#add(choice.index, { content: choice.message?.content ?? '' });
      for (const [index, call] of (choice.message?.tool_calls ?? []).entries())
        this.#add(choice.index, { tool_calls: [{ ...call, index }] });
      this.outcome.finishReasons[choice.index] = choice.finish_reason ?? undefined;
    }
    this.ended();
  }

  ended(): void {
    this.outcome.isWhole = true;
    this.isOver = true;
  }

  fails(fault: string): void {
    this.outcome.faults.push(fault);
    this.isOver = true;
  }

  connectionBroke(): void {
    this.#pending = [];
  }

  #commit(): void {
    for (const chunk of this.#pending) {
      for (const { index, delta, finish_reason } of chunk.choices ?? []) {
        this.#add(index, delta ?? {});
        if (!finish_reason) continue;
        if (this.outcome.finishReasons[index] !== undefined) this.outcome.faults.push(`choice ${index} finished twice`);
        this.outcome.finishReasons[index] = finish_reason;
      }
    }
    this.#pending = [];
  }

  #add(choice: number, { content, tool_calls: calls = [] }: Said): void {
    const { texts, faults } = this.outcome;
    texts[choice] = (texts[choice] ?? '') + (content ?? '');
    this.#callIds[choice] ??= [];
    const ids = this.#callIds[choice];
    for (const { index, id, function: called } of calls) {
      // A call begins with its id and its name, and only the last one goes on.
      const isNew = index === ids.length && id !== undefined && !ids.includes(id) && called?.name !== undefined;
      if (isNew) {
        ids.push(id);
        this.outcome.callCount += 1;
        texts[choice] += `\n${called.name}(`;
      } else if (index === undefined || index !== ids.length - 1 || id !== undefined || called?.name !== undefined) {
        faults.push(`choice ${choice}: a piece of call ${index} (${id}) behind ${ids.length} calls`);
      }
      texts[choice] += called?.arguments ?? '';
    }
  }
}

function send(
  { baseUrl, apiKey }: Target,
  request: { method: string; path: string; headers: Record<string, string>; body?: string },
): Promise<http.IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<http.IncomingMessage>();
  const sent = http.request(`${baseUrl}${request.path}`, {
    method: request.method,
    agent: false,
    headers: { ...request.headers, 'content-type': 'application/json', authorization: `Bearer ${apiKey}`, 'x-sluice-cache': 'off' },
  });
  sent.setTimeout(SILENCE_MS, () => sent.destroy(new Error('silent')));
  sent.once('response', resolve).on('error', reject);
  sent.end(request.body);
  return promise;
}

async function textOf(response: http.IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const bytes of response) chunks.push(bytes as Buffer);
  return Buffer.concat(chunks).toString('utf8');
}

function waitOf(response: http.IncomingMessage): number {
  const seconds = Number(response.headers['retry-after']);
  return Number.isFinite(seconds) ? Math.min(LONGEST_WAIT_MS, Math.max(RETRY_MS, seconds * 1000)) : RETRY_MS;
}
