/**
 * Token events: all that a batcher tells about a job. Of one attempt they are numbered from 0 without a gap,
 * and exactly one of them, the last, is terminal (`finish` or `error`).
 *
 * On the wire an `out:{shard}` entry holds the events of one step for all jobs of that shard as one JSON array (field `e`);
 * `gen:{id}` holds the same events of one job, one entry an event.
 */

export const FINISH_REASONS = ['stop', 'length', 'tool_calls', 'content_filter'] as const;
export type FinishReason = (typeof FINISH_REASONS)[number];

export interface TokenLogprob {
  token: string;
  tokenId: number;
  logprob: number;
  /** UTF-8 bytes of this token alone; it may be part of a character. */
  bytes: number[];
  top: { token: string; tokenId: number; logprob: number; bytes: number[] }[];
}

export interface Usage {
  promptTokens: number;
  completionTokens: number;
  /** Prompt tokens whose keys and values came from the prefix cache. */
  cachedTokens: number;
  /** Completion tokens of reasoning; absent where the model does not reason apart from its answer. */
  reasoningTokens?: number;
}

/** Milliseconds, measured in the batcher. */
export interface Timings {
  queueMs: number;
  prefillMs: number;
  ttftMs: number;
  /** Of this request, from its first to its last token. */
  decodeTokensPerSecond: number;
}

interface EventHead {
  /** Job id. */
  id: string;
  /** Which take of the job this is, from 1: a later attempt fences off an earlier one. */
  attempt: number;
  /** Sequence number within the job, from 0; a later attempt goes on where the record ends. */
  seq: number;
}

export interface AcceptedEvent extends EventHead {
  type: 'accepted';
  /** Of all prompts. */
  promptTokens: number;
}

/** This attempt runs it apart from others of its kind: it was there at nearly as many deaths as convict one. */
export interface TriedEvent extends EventHead {
  type: 'tried';
}

/** A token of the prompt; the first follows nothing and has no log-probability. */
export interface EchoedToken extends Omit<TokenLogprob, 'logprob'> {
  logprob: number | null;
}

/** The prompt, told back before its choices' first deltas, piece by piece. */
export interface EchoEvent extends EventHead {
  type: 'echo';
  /** Index of the prompt among the request's. */
  prompt: number;
  /** Prompt tokens that this piece covers. */
  tokenCount: number;
  text: string;
  /** One for each of them, where the prompt is scored. */
  tokens?: EchoedToken[];
}

/** A piece of a call; its pieces follow each other, and calls do not overlap. */
export interface CallDelta {
  /** Of the call in its choice, from 0. */
  index: number;
  /** Of the function; in a call's first piece and nowhere else. */
  name?: string;
  /** What it adds to the arguments, which are JSON unless the model wrote something else. */
  arguments: string;
}

export interface DeltaEvent extends EventHead {
  type: 'delta';
  choice: number;
  /** Token ids generated since the last event of this choice. */
  tokenIds: number[];
  /** Text that is now certain: whole characters, nothing that may still become a stop string. May be empty. */
  text: string;
  /** What the model says to itself first; all of it before text and calls, which have nothing of it. */
  reasoning?: string;
  /** Calls that the answer makes; `text` has nothing of them. */
  calls?: CallDelta[];
  logprobs?: TokenLogprob[];
  /** Set once: from one of these tokens on the room that is left decides what may come, and so where the choice ends. */
  windsUp?: true;
  /** Set once, on the last delta of this choice. */
  finishReason?: FinishReason;
  /** Beside it, where it was a stop string that ended the choice. */
  stopText?: string;
}

/** What a prompt becomes. */
export interface TokensEvent extends EventHead {
  type: 'tokens';
  tokenIds: number[];
  /** The text of each, control tokens spelled; where it was asked for. */
  texts?: string[];
  /** Most tokens that the model takes. */
  contextTokens: number;
}

/** What tokens stand for. */
export interface TextEvent extends EventHead {
  type: 'text';
  text: string;
}

/** The vectors of some prompts. */
export interface EmbeddingsEvent extends EventHead {
  type: 'embeddings';
  /** Index of the first prompt; the others follow it. */
  first: number;
  /** Numbers of each. */
  dimensions: number;
  /** Each as little-endian float32, base64. */
  vectors: string[];
}

export interface FinishEvent extends EventHead {
  type: 'finish';
  usage: Usage;
  timings: Timings;
}

export interface ErrorEvent extends EventHead {
  type: 'error';
  /** A code of shared/errors.ts. */
  code: string;
  message: string;
  param?: string;
}

export type TokenEvent =
  | AcceptedEvent
  | TriedEvent
  | EchoEvent
  | DeltaEvent
  | TokensEvent
  | TextEvent
  | EmbeddingsEvent
  | FinishEvent
  | ErrorEvent;

/** What an answer is made of. */
export type AnswerEvent = Exclude<TokenEvent, ErrorEvent>;

/** Large, and cheap to make again. */
export type BulkyEvent = TokensEvent | TextEvent | EmbeddingsEvent;

export function isBulky(event: TokenEvent): event is BulkyEvent {
  return event.type === 'tokens' || event.type === 'text' || event.type === 'embeddings';
}

/** As it is recorded. */
export function encodeEvent(event: TokenEvent): string {
  return JSON.stringify(event);
}

/** An entry of several, each encoded by encodeEvent(). */
export function joinedEvents(encoded: readonly string[]): string {
  return `[${encoded.join(',')}]`;
}

/**
 * Throws when the entry is not an array of events; events of a type that this version does not know are left out. Checked by hand:
 * it is done for every token, and a schema would copy each event.
 */
export function decodeEvents(json: string): TokenEvent[] {
  const entry: unknown = JSON.parse(json);
  if (!Array.isArray(entry) || !entry.every(isEvent)) throw new TypeError('This is no list of token events.');
  return entry.filter(event => Object.hasOwn(BODIES, event.type)) as unknown as TokenEvent[];
}

/** What of an entry can be read; for readers that notice a gap by the sequence numbers, and have other jobs' events in the same entry. */
export function readableEvents(json: string): TokenEvent[] {
  try {
    const entry: unknown = JSON.parse(json);
    if (!Array.isArray(entry)) return [];
    return entry.filter(event => isEvent(event) && Object.hasOwn(BODIES, event.type)) as unknown as TokenEvent[];
  } catch {
    return [];
  }
}

type Fields = Record<string, unknown>;

/** What each type has besides its head. */
const BODIES: Record<TokenEvent['type'], (event: Fields) => boolean> = {
  accepted: ({ promptTokens }) => isCount(promptTokens),
  tried: () => true,
  echo: ({ prompt, tokenCount, text, tokens }) =>
    isCount(prompt) && isCount(tokenCount) && typeof text === 'string' && (tokens === undefined || isLogprobs(tokens, true)),
  delta: ({ choice, tokenIds, text, reasoning, calls, logprobs, windsUp, finishReason, stopText }) =>
    isCount(choice) &&
    Array.isArray(tokenIds) &&
    tokenIds.every(isCount) &&
    typeof text === 'string' &&
    (reasoning === undefined || typeof reasoning === 'string') &&
    (calls === undefined || (Array.isArray(calls) && calls.every(isCall))) &&
    (logprobs === undefined || isLogprobs(logprobs, false)) &&
    (windsUp === undefined || windsUp === true) &&
    (finishReason === undefined || FINISH_REASONS.includes(finishReason as FinishReason)) &&
    (stopText === undefined || typeof stopText === 'string'),
  tokens: ({ tokenIds, texts, contextTokens }) =>
    Array.isArray(tokenIds) &&
    tokenIds.every(isCount) &&
    (texts === undefined || isTexts(texts, tokenIds.length)) &&
    isCount(contextTokens),
  text: ({ text }) => typeof text === 'string',
  embeddings: ({ first, dimensions, vectors }) =>
    isCount(first) &&
    isCount(dimensions) &&
    dimensions > 0 &&
    Array.isArray(vectors) &&
    vectors.every(vector => typeof vector === 'string' && floatCount(vector) === dimensions),
  finish: ({ usage, timings }) =>
    isRecord(usage) &&
    isCount(usage.promptTokens) &&
    isCount(usage.completionTokens) &&
    isCount(usage.cachedTokens) &&
    (usage.reasoningTokens === undefined || isCount(usage.reasoningTokens)) &&
    isRecord(timings) &&
    isNumber(timings.queueMs) &&
    isNumber(timings.prefillMs) &&
    isNumber(timings.ttftMs) &&
    isNumber(timings.decodeTokensPerSecond),
  error: ({ code, message, param }) =>
    typeof code === 'string' && typeof message === 'string' && (param === undefined || typeof param === 'string'),
};

function isEvent(event: unknown): event is EventHead & { type: string } {
  if (!isRecord(event)) return false;
  const { type, id, attempt, seq } = event;
  if (typeof type !== 'string' || typeof id !== 'string' || !isCount(attempt) || !isCount(seq)) return false;
  return !Object.hasOwn(BODIES, type) || BODIES[type as TokenEvent['type']](event);
}

function isLogprobs(list: unknown, mayLack: boolean): boolean {
  return (
    Array.isArray(list) &&
    list.every(one => isChance(one, mayLack) && Array.isArray(one.top) && one.top.every(other => isChance(other, false)))
  );
}

function isChance(one: unknown, mayLack: boolean): one is Fields {
  if (!isRecord(one)) return false;
  const { token, tokenId, logprob, bytes } = one;
  return (
    typeof token === 'string' &&
    isCount(tokenId) &&
    (isNumber(logprob) || (mayLack && logprob === null)) &&
    Array.isArray(bytes) &&
    bytes.every(isCount)
  );
}

function isCall(call: unknown): boolean {
  return (
    isRecord(call) &&
    isCount(call.index) &&
    (call.name === undefined || typeof call.name === 'string') &&
    typeof call.arguments === 'string'
  );
}

/** Pieces of calls as one list, those of one call that follow each other as one piece. */
export function joinedCalls(...lists: readonly (readonly CallDelta[] | undefined)[]): CallDelta[] {
  const joined: CallDelta[] = [];
  for (const call of lists.flatMap(list => list ?? [])) {
    const last = joined.at(-1);
    if (last?.index === call.index) joined[joined.length - 1] = { ...last, arguments: last.arguments + call.arguments };
    else joined.push(call);
  }
  return joined;
}

function isTexts(texts: unknown, count: number): boolean {
  return Array.isArray(texts) && texts.length === count && texts.every(text => typeof text === 'string');
}

/** Float32 numbers in a base64 text; 0 for a text that is none. */
function floatCount(base64: string): number {
  if (base64.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(base64)) return 0;
  const bytes = (base64.length / 4) * 3 - (base64.endsWith('==') ? 2 : base64.endsWith('=') ? 1 : 0);
  return bytes % 4 === 0 ? bytes / 4 : 0;
}

function isRecord(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function isNumber(value: unknown): value is number {
  return typeof value === 'number';
}

export function isTerminal(event: TokenEvent): event is FinishEvent | ErrorEvent {
  return event.type === 'finish' || event.type === 'error';
}
