/** OpenaiResponse: the objects of the chat completions contract, made from token events. Keys that may be null are there and null. */
import type { FinishReason, Timings, TokenLogprob, Usage } from '../shared/token-event.ts';

/** What is the same in every object of one reply. */
export interface ReplyHead {
  id: string;
  /** Epoch seconds. */
  created: number;
  /** The name under which the model is served, also when the client said `default`. */
  model: string;
}

export interface ChatMessageOut {
  role: 'assistant';
  /** An extension, as other servers of such models have it. */
  reasoning_content?: string | undefined;
  /** Null beside calls where nothing was said. */
  content: string | null;
  refusal: null;
  tool_calls?: ToolCallOut[] | undefined;
}

export interface ToolCallOut {
  id: string;
  type: 'function';
  function: { name: string; arguments: string };
}

export interface LogprobsOut {
  content: LogprobOut[];
  refusal: null;
}

interface TokenChance {
  token: string;
  logprob: number;
  bytes: number[];
}

interface LogprobOut extends TokenChance {
  top_logprobs: TokenChance[];
}

export interface ChatChoiceOut {
  index: number;
  message: ChatMessageOut;
  logprobs: LogprobsOut | null;
  finish_reason: FinishReason;
}

export interface UsageOut {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details: { cached_tokens: number };
  /** Of models that reason apart from their answer. */
  completion_tokens_details?: { reasoning_tokens: number } | undefined;
}

/** An extension: where the time went, measured in the batcher. */
export interface TimingsOut {
  queue_ms: number;
  prefill_ms: number;
  ttft_ms: number;
  decode_tokens_per_second: number;
}

export function logprobsOut(logprobs: readonly TokenLogprob[]): LogprobsOut {
  return {
    content: logprobs.map(({ token, logprob, bytes, top }) => ({
      token,
      logprob,
      bytes,
      top_logprobs: top.map(other => ({ token: other.token, logprob: other.logprob, bytes: other.bytes })),
    })),
    refusal: null,
  };
}

export function usageOut(usage: Usage): UsageOut {
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: { cached_tokens: usage.cachedTokens },
    ...(usage.reasoningTokens !== undefined && { completion_tokens_details: { reasoning_tokens: usage.reasoningTokens } }),
  };
}

/** Of a generation under way; how much of the prompt was cached is known at its end. */
export function runningUsageOut(usage: Usage): Omit<UsageOut, 'prompt_tokens_details' | 'completion_tokens_details'> {
  const { prompt_tokens, completion_tokens, total_tokens } = usageOut(usage);
  return { prompt_tokens, completion_tokens, total_tokens };
}

export function timingsOut(timings: Timings): TimingsOut {
  return {
    queue_ms: timings.queueMs,
    prefill_ms: timings.prefillMs,
    ttft_ms: timings.ttftMs,
    decode_tokens_per_second: timings.decodeTokensPerSecond,
  };
}

/** An answer that had to call one function by its name ends as one without calls: so do OpenAI's, and vLLM's. */
export function finishReasonOut(reason: FinishReason, hasNamedCall: boolean): FinishReason {
  return hasNamedCall && reason === 'tool_calls' ? 'stop' : reason;
}

export function chatCompletion(head: ReplyHead, choices: ChatChoiceOut[], end: { usage: Usage; timings: Timings }): object {
  return {
    id: head.id,
    object: 'chat.completion',
    created: head.created,
    model: head.model,
    choices,
    usage: usageOut(end.usage),
    timings: timingsOut(end.timings),
  };
}
