/** MessageObject: Anthropic's message, its parts and its usage, made from the events of its job. */
import type { ServiceClass } from '../../shared/job.ts';
import type { FinishReason, Usage } from '../../shared/token-event.ts';
import type { BlockOut } from './message-blocks.ts';

/** What is known of a message before its first word. */
export interface MessageHead {
  /** Of the job, and so of the message. */
  id: string;
  model: string;
  serviceClass: ServiceClass;
}

export type StopReason = 'end_turn' | 'max_tokens' | 'stop_sequence' | 'tool_use' | 'refusal';

/** Of a message that is over; both are null before. */
export interface MessageEnd {
  stop_reason: StopReason | null;
  /** The one of `stop_sequences` that ended it. */
  stop_sequence: string | null;
}

export interface MessageUsageOut {
  /** Of the prompt, what was not read from the cache. */
  input_tokens: number;
  cache_creation: null;
  cache_creation_input_tokens: number;
  cache_read_input_tokens: number;
  output_tokens: number;
  server_tool_use: null;
  service_tier: 'standard' | 'priority' | 'batch';
}

export interface MessageOut extends MessageEnd {
  id: string;
  type: 'message';
  role: 'assistant';
  model: string;
  content: BlockOut[];
  stop_details: null;
  container: null;
  usage: MessageUsageOut;
}

const TIERS = { priority: 'priority', default: 'standard', flex: 'batch' } as const;
const REASONS = { stop: 'end_turn', length: 'max_tokens', tool_calls: 'tool_use', content_filter: 'refusal' } as const;

export function messageOut(head: MessageHead, more: { content: BlockOut[]; end: MessageEnd; usage: Usage }): MessageOut {
  return {
    id: head.id,
    type: 'message',
    role: 'assistant',
    model: head.model,
    content: more.content,
    ...more.end,
    stop_details: null,
    container: null,
    usage: messageUsage(head, more.usage),
  };
}

/** Input tokens, those from the cache and those that made one are told apart, and add up to the prompt. */
export function messageUsage({ serviceClass }: MessageHead, { promptTokens, cachedTokens, completionTokens }: Usage): MessageUsageOut {
  return {
    input_tokens: promptTokens - cachedTokens,
    cache_creation: null,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cachedTokens,
    output_tokens: completionTokens,
    server_tool_use: null,
    service_tier: TIERS[serviceClass],
  };
}

export const UNENDED: MessageEnd = { stop_reason: null, stop_sequence: null };

export function messageEnd(reason: FinishReason, stopText: string | undefined): MessageEnd {
  return stopText === undefined
    ? { stop_reason: REASONS[reason], stop_sequence: null }
    : { stop_reason: 'stop_sequence', stop_sequence: stopText };
}
