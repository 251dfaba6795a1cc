/** ResponseSchemas: a response and its events as the description tells them; the compiler holds them to what is written. */
import { z } from 'zod';
import type { PageOut } from '../batches/list-range.ts';
import type { DeletedResponseOut } from '../responses/kept-responses.ts';
import type { InputItemOut } from '../responses/response-input.ts';
import type { ResponseOut } from '../responses/response-object.ts';
import type { OutputItemOut } from '../responses/response-output.ts';
import type { FunctionToolOut, ToolChoiceOut } from '../responses/response-tools.ts';
import { pageOf } from './batch-schemas.ts';

const Count = z.int().min(0);

const OutputText = z.object({
  type: z.literal('output_text'),
  text: z.string(),
  annotations: z.array(z.never()),
  logprobs: z.array(z.never()),
});

const Status = z.enum(['in_progress', 'completed', 'incomplete']);

const OutputMessage = z.object({
  id: z.string(),
  type: z.literal('message'),
  status: Status,
  role: z.literal('assistant'),
  content: z.array(OutputText),
});

const FunctionCall = z.object({
  id: z.string().regex(/^fc_/),
  type: z.literal('function_call'),
  status: Status,
  call_id: z.string(),
  name: z.string(),
  arguments: z.string().describe('JSON, unless the model wrote something else.'),
});

const ReasoningItem = z.object({
  id: z.string().regex(/^rs_/),
  type: z.literal('reasoning'),
  status: Status,
  summary: z.array(z.never()),
  content: z.array(z.object({ type: z.literal('reasoning_text'), text: z.string() })),
});

const OutputItem = z.discriminatedUnion('type', [OutputMessage, FunctionCall, ReasoningItem]) satisfies z.ZodType<OutputItemOut>;

const status = z.literal('completed');
const InputItem = z.discriminatedUnion('type', [
  z.object({
    ...{ id: z.string(), type: z.literal('message'), status },
    role: z.enum(['user', 'system', 'assistant']),
    content: z.array(z.union([z.object({ type: z.literal('input_text'), text: z.string() }), OutputText])),
  }),
  FunctionCall.extend({ status }),
  z.object({ id: z.string(), type: z.literal('function_call_output'), status, call_id: z.string(), output: z.string() }),
]) satisfies z.ZodType<InputItemOut>;

export const InputItemList = pageOf(InputItem) satisfies z.ZodType<PageOut<InputItemOut>>;

export const DeletedResponse = z.object({
  id: z.string(),
  object: z.literal('response'),
  deleted: z.literal(true),
}) satisfies z.ZodType<DeletedResponseOut>;

const FunctionTool = z.object({
  type: z.literal('function'),
  name: z.string(),
  description: z.string().nullable(),
  parameters: z.record(z.string(), z.unknown()).nullable(),
  strict: z.boolean().nullable(),
}) satisfies z.ZodType<FunctionToolOut>;

const NamedFunction = z.object({ type: z.literal('function'), name: z.string() });
const ToolChoice = z.union([
  z.enum(['none', 'auto', 'required']),
  NamedFunction,
  z.object({ type: z.literal('allowed_tools'), mode: z.enum(['auto', 'required']), tools: z.array(NamedFunction) }),
]) satisfies z.ZodType<ToolChoiceOut>;

export const ResponseReply = z.object({
  id: z.string(),
  object: z.literal('response'),
  created_at: z.int().min(0).describe('Epoch seconds.'),
  status: z.enum(['queued', 'in_progress', 'completed', 'incomplete', 'failed', 'cancelled']),
  background: z.boolean(),
  error: z.object({ code: z.string(), message: z.string() }).nullable(),
  incomplete_details: z.object({ reason: z.string() }).nullable(),
  model: z.string(),
  output: z.array(OutputItem),
  previous_response_id: z.string().nullable(),
  reasoning: z.object({ effort: z.null(), summary: z.null() }),
  store: z.boolean(),
  text: z.object({
    format: z.union([
      z.object({ type: z.enum(['text', 'json_object']) }),
      z.object({
        type: z.literal('json_schema'),
        name: z.string(),
        schema: z.record(z.string(), z.unknown()),
        description: z.string().nullable(),
        strict: z.boolean(),
      }),
    ]),
  }),
  tools: z.array(FunctionTool),
  truncation: z.literal('disabled'),
  usage: z
    .object({
      input_tokens: Count,
      input_tokens_details: z.object({ cached_tokens: Count }),
      output_tokens: Count,
      output_tokens_details: z.object({ reasoning_tokens: Count }),
      total_tokens: Count,
    })
    .nullable()
    .describe('Null until it is over.'),
  instructions: z.string().nullable(),
  max_output_tokens: z.int().nullable(),
  metadata: z.record(z.string(), z.string()),
  parallel_tool_calls: z.boolean(),
  service_tier: z.string(),
  temperature: z.number(),
  tool_choice: ToolChoice,
  top_p: z.number(),
  user: z.string().nullable(),
}) satisfies z.ZodType<ResponseOut>;

export const ResponseEvent = z.object({
  type: z.string().describe('`response.created`, `response.output_text.delta`, `response.completed` and so on, or `error`.'),
  sequence_number: Count.describe('What `starting_after` takes.'),
});
