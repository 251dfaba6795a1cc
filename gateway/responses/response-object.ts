/** ResponseObject: OpenAI's response, made from the events of its job, as far as they have come. */
import { type ApiError, statusOf } from '../../shared/errors.ts';
import type { FinishReason, Usage } from '../../shared/token-event.ts';

/** What of a request every reply to it repeats. */
export interface ResponseEcho {
  instructions: string | null;
  max_output_tokens: number | null;
  metadata: Record<string, string>;
  parallel_tool_calls: boolean;
  service_tier: string;
  temperature: number;
  /** Absent in records of before it was there. */
  text?: { format: TextFormatOut };
  tool_choice: 'none' | 'auto';
  top_p: number;
  user: string | null;
}

export type TextFormatOut =
  | { type: 'text' | 'json_object' }
  | { type: 'json_schema'; name: string; schema: Record<string, unknown>; description: string | null; strict: boolean };

export interface ResponseHead {
  /** Of the job, and so of the response. */
  id: string;
  /** Epoch seconds. */
  created: number;
  model: string;
  isBackground: boolean;
  isStored: boolean;
  echo: ResponseEcho;
}

export type ResponseStatus = 'queued' | 'in_progress' | 'completed' | 'incomplete' | 'failed' | 'cancelled';

export interface OutputTextOut {
  type: 'output_text';
  text: string;
  annotations: never[];
  logprobs: never[];
}

export interface OutputMessageOut {
  id: string;
  type: 'message';
  status: 'in_progress' | 'completed' | 'incomplete';
  role: 'assistant';
  content: OutputTextOut[];
}

export interface ResponseOut extends ResponseEcho {
  id: string;
  object: 'response';
  created_at: number;
  status: ResponseStatus;
  background: boolean;
  error: { code: string; message: string } | null;
  incomplete_details: { reason: string } | null;
  model: string;
  output: OutputMessageOut[];
  previous_response_id: null;
  reasoning: { effort: null; summary: null };
  store: boolean;
  text: { format: TextFormatOut };
  tools: never[];
  truncation: 'disabled';
  usage: ResponseUsageOut | null;
}

export interface ResponseUsageOut {
  input_tokens: number;
  input_tokens_details: { cached_tokens: number };
  output_tokens: number;
  output_tokens_details: { reasoning_tokens: number };
  total_tokens: number;
}

/** How far it is. */
export interface ResponseState {
  status: ResponseStatus;
  /** Undefined before the first word. */
  text: string | undefined;
  usage?: Usage | undefined;
  error?: Pick<ApiError, 'code' | 'message'> | undefined;
}

export function responseOut(head: ResponseHead, { status, text, usage, error }: ResponseState): ResponseOut {
  const { id, created, model, isBackground, isStored, echo } = head;
  return {
    id,
    object: 'response',
    created_at: created,
    status,
    background: isBackground,
    error: error === undefined || status === 'cancelled' ? null : { code: errorCode(error), message: error.message },
    incomplete_details: status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
    model,
    output: text === undefined ? [] : [messageOut(id, text, messageStatus(status))],
    previous_response_id: null,
    reasoning: { effort: null, summary: null },
    store: isStored,
    tools: [],
    truncation: 'disabled',
    usage: usage === undefined ? null : usageOut(usage),
    ...echo,
    text: echo.text ?? { format: { type: 'text' } },
  };
}

export function messageOut(responseId: string, text: string | undefined, status: OutputMessageOut['status']): OutputMessageOut {
  const content = text === undefined ? [] : [textOut(text)];
  return { id: messageId(responseId), type: 'message', status, role: 'assistant', content };
}

export function textOut(text: string): OutputTextOut {
  return { type: 'output_text', text, annotations: [], logprobs: [] };
}

export function messageId(responseId: string): string {
  return `msg_${responseId.slice(responseId.indexOf('_') + 1)}`;
}

export function endStatus(reason: FinishReason | undefined): 'completed' | 'incomplete' {
  return reason === 'length' ? 'incomplete' : 'completed';
}

/** Of a response that came to no good end. */
export function failureStatus(error: Pick<ApiError, 'code'>): 'cancelled' | 'failed' {
  return error.code === 'request_cancelled' ? 'cancelled' : 'failed';
}

function messageStatus(status: ResponseStatus): OutputMessageOut['status'] {
  if (status === 'completed') return 'completed';
  return status === 'in_progress' ? 'in_progress' : 'incomplete';
}

/** Of the few codes that the contract has. */
function errorCode({ code }: Pick<ApiError, 'code'>): string {
  const status = statusOf(code);
  if (status === 429) return 'rate_limit_exceeded';
  return status < 500 ? 'invalid_prompt' : 'server_error';
}

function usageOut({ promptTokens, cachedTokens, completionTokens }: Usage): ResponseUsageOut {
  return {
    input_tokens: promptTokens,
    input_tokens_details: { cached_tokens: cachedTokens },
    output_tokens: completionTokens,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: promptTokens + completionTokens,
  };
}
