/** ResponseObject: OpenAI's response, made from the events of its job, as far as they have come. */
import { type ApiError, statusOf } from '../../shared/errors.ts';
import type { FinishReason, Usage } from '../../shared/token-event.ts';
import type { ItemStatus, OutputItemOut } from './response-output.ts';
import type { FunctionToolOut, ToolChoiceOut } from './response-tools.ts';

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
  tool_choice: ToolChoiceOut;
  /** This and the next absent in records of before they were there. */
  tools?: FunctionToolOut[];
  previous_response_id?: string | null;
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

export interface ResponseOut extends ResponseEcho {
  id: string;
  object: 'response';
  created_at: number;
  status: ResponseStatus;
  background: boolean;
  error: { code: string; message: string } | null;
  incomplete_details: { reason: string } | null;
  model: string;
  output: OutputItemOut[];
  previous_response_id: string | null;
  reasoning: { effort: null; summary: null };
  store: boolean;
  text: { format: TextFormatOut };
  tools: FunctionToolOut[];
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
  output: OutputItemOut[];
  usage?: Usage | undefined;
  error?: Pick<ApiError, 'code' | 'message'> | undefined;
}

export function responseOut(head: ResponseHead, { status, output, usage, error }: ResponseState): ResponseOut {
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
    output,
    reasoning: { effort: null, summary: null },
    store: isStored,
    truncation: 'disabled',
    usage: usage === undefined ? null : usageOut(usage),
    ...echo,
    text: echo.text ?? { format: { type: 'text' } },
    tools: echo.tools ?? [],
    previous_response_id: echo.previous_response_id ?? null,
  };
}

export function endStatus(reason: FinishReason | undefined): 'completed' | 'incomplete' {
  return reason === 'length' ? 'incomplete' : 'completed';
}

/** Of a response that came to no good end. */
export function failureStatus(error: Pick<ApiError, 'code'>): 'cancelled' | 'failed' {
  return error.code === 'request_cancelled' ? 'cancelled' : 'failed';
}

/** Of the last item of a response that is so far. */
export function lastStatus(status: ResponseStatus): ItemStatus {
  if (status === 'completed') return 'completed';
  return status === 'in_progress' ? 'in_progress' : 'incomplete';
}

/** Of the few codes that the contract has. */
function errorCode({ code }: Pick<ApiError, 'code'>): string {
  const status = statusOf(code);
  if (status === 429) return 'rate_limit_exceeded';
  return status < 500 ? 'invalid_prompt' : 'server_error';
}

function usageOut({ promptTokens, cachedTokens, completionTokens, reasoningTokens = 0 }: Usage): ResponseUsageOut {
  return {
    input_tokens: promptTokens,
    input_tokens_details: { cached_tokens: cachedTokens },
    output_tokens: completionTokens,
    output_tokens_details: { reasoning_tokens: reasoningTokens },
    total_tokens: promptTokens + completionTokens,
  };
}
