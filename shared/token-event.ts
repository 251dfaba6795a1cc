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

export interface DeltaEvent extends EventHead {
  type: 'delta';
  choice: number;
  /** Token ids generated since the last event of this choice. */
  tokenIds: number[];
  /** Text that is now certain: whole characters, nothing that may still become a stop string. May be empty. */
  text: string;
  logprobs?: TokenLogprob[];
  /** Set once, on the last delta of this choice. */
  finishReason?: FinishReason;
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

export type TokenEvent = AcceptedEvent | EchoEvent | DeltaEvent | FinishEvent | ErrorEvent;

/** What an answer is made of. */
export type AnswerEvent = Exclude<TokenEvent, ErrorEvent>;

export function encodeEvents(events: readonly TokenEvent[]): string {
  return JSON.stringify(events);
}

/**
 * Throws when the entry is not an array of event heads; events of a type that this version does not know are left out. Checked by hand:
 * it is done for every token, and a schema would copy each event.
 */
export function decodeEvents(json: string): TokenEvent[] {
  const entry: unknown = JSON.parse(json);
  if (!Array.isArray(entry) || !entry.every(hasHead)) throw new TypeError('This is no list of token events.');
  return entry.filter(event => KNOWN_TYPES.has(event.type)) as unknown as TokenEvent[];
}

function hasHead(event: unknown): event is EventHead & { type: string } {
  if (typeof event !== 'object' || event === null) return false;
  const { type, id, attempt, seq } = event as Record<string, unknown>;
  return typeof type === 'string' && typeof id === 'string' && Number.isSafeInteger(attempt) && Number.isSafeInteger(seq);
}

const KNOWN_TYPES: ReadonlySet<string> = new Set<TokenEvent['type']>(['accepted', 'echo', 'delta', 'finish', 'error']);

export function isTerminal(event: TokenEvent): event is FinishEvent | ErrorEvent {
  return event.type === 'finish' || event.type === 'error';
}
