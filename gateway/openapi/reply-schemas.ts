/**
 * ReplySchemas: what the gateway answers with, as schemas for the API's description; nothing is validated with them at run time. The
 * compiler holds each to the type of the code that writes the reply.
 */
import { z } from 'zod';
import type { BatcherOut, KeyOut, LimitsOut, ListOut, QueueOut, TenantOut, UsageOut as UsageRowOut } from '../../shared/admin-wire.ts';
import { ERROR_CODES, type ErrorBody } from '../../shared/errors.ts';
import { FINISH_REASONS } from '../../shared/token-event.ts';
import type { CompletionChoiceOut, CompletionLogprobsOut } from '../completion-response.ts';
import type { EmbeddingUsageOut } from '../embeddings-body.ts';
import type { ChatChoiceOut, LogprobsOut, TimingsOut, ToolCallOut, UsageOut } from '../openai-response.ts';
import type { DetokenizeOut, TokenizeOut } from '../quick-body.ts';
import type { ModelOut } from '../routes/models.ts';
import type { ScaleOut } from '../routes/scale.ts';

const Count = z.int().min(0);
const Ms = z.number().min(0);
const Seconds = z.int().describe('Epoch seconds.');
const Byte = z.int().min(0).max(255);

export const ErrorReply = z.object({
  error: z.object({
    message: z.string(),
    type: z.string(),
    param: z.string().nullable().describe('The field that is at fault, as `messages[0].content`.'),
    code: z.enum(ERROR_CODES),
  }),
}) satisfies z.ZodType<ErrorBody>;

const Usage = z.object({
  prompt_tokens: Count,
  completion_tokens: Count,
  total_tokens: Count,
  prompt_tokens_details: z.object({ cached_tokens: Count.describe('Prompt tokens whose keys and values came from the prefix cache.') }),
  completion_tokens_details: z.object({ reasoning_tokens: Count }).optional().describe('Of models that reason apart from their answer.'),
}) satisfies z.ZodType<UsageOut>;

const Timings = z
  .object({ queue_ms: Ms, prefill_ms: Ms, ttft_ms: Ms, decode_tokens_per_second: z.number().min(0) })
  .describe('An extension: where the time went, measured in the batcher.') satisfies z.ZodType<TimingsOut>;

const FinishReason = z.enum(FINISH_REASONS);

const TokenChance = z.object({ token: z.string(), logprob: z.number(), bytes: z.array(Byte) });
const Logprobs = z.object({
  content: z.array(TokenChance.extend({ top_logprobs: z.array(TokenChance) })),
  refusal: z.null(),
}) satisfies z.ZodType<LogprobsOut>;

const ToolCall = z.object({
  id: z.string().regex(/^call_/),
  type: z.literal('function'),
  function: z.object({ name: z.string(), arguments: z.string().describe('JSON, unless the model wrote something else.') }),
}) satisfies z.ZodType<ToolCallOut>;

const Reasoning = z.string().describe('An extension: what the model said to itself first, where it reasons apart from its answer.');

const ChatChoice = z.object({
  index: Count,
  message: z.object({
    role: z.literal('assistant'),
    reasoning_content: Reasoning.optional(),
    content: z.string().nullable().describe('Null beside calls where nothing was said.'),
    refusal: z.null(),
    tool_calls: z.array(ToolCall).min(1).optional(),
  }),
  logprobs: Logprobs.nullable(),
  finish_reason: FinishReason,
}) satisfies z.ZodType<ChatChoiceOut>;

export const ChatCompletion = z.object({
  id: z.string().regex(/^chatcmpl-/),
  object: z.literal('chat.completion'),
  created: Seconds,
  model: z.string(),
  choices: z.array(ChatChoice).min(1),
  usage: Usage,
  timings: Timings,
});

export const ChatCompletionChunk = z
  .object({
    id: z.string().regex(/^chatcmpl-/),
    object: z.literal('chat.completion.chunk'),
    created: Seconds,
    model: z.string(),
    choices: z.array(
      z.object({
        index: Count,
        delta: z.object({
          role: z.literal('assistant').optional(),
          reasoning_content: Reasoning.optional(),
          content: z.string().nullable().optional(),
          refusal: z.null().optional(),
          tool_calls: z
            .array(
              z.object({
                index: Count,
                id: z.string().optional(),
                type: z.literal('function').optional(),
                function: z.object({ name: z.string().optional(), arguments: z.string() }),
              }),
            )
            .optional()
            .describe("Of a call's first piece all, of the others the index and a piece of the arguments."),
        }),
        logprobs: Logprobs.nullable(),
        finish_reason: FinishReason.nullable(),
      }),
    ),
    usage: Usage.nullable().optional(),
    timings: Timings.optional(),
  })
  .describe('The data of one event of a streamed chat completion.');

const CompletionLogprobs = z.object({
  tokens: z.array(z.string()),
  token_logprobs: z.array(z.number().nullable()),
  top_logprobs: z.array(z.record(z.string(), z.number()).nullable()),
  text_offset: z.array(Count),
}) satisfies z.ZodType<CompletionLogprobsOut>;

const CompletionChoice = z.object({
  index: Count,
  text: z.string(),
  logprobs: CompletionLogprobs.nullable(),
  finish_reason: FinishReason.nullable(),
}) satisfies z.ZodType<CompletionChoiceOut>;

export const Completion = z.object({
  id: z.string().regex(/^cmpl-/),
  object: z.literal('text_completion'),
  created: Seconds,
  model: z.string(),
  choices: z.array(CompletionChoice).min(1),
  usage: Usage,
  timings: Timings,
});

export const CompletionChunk = Completion.extend({
  choices: z.array(CompletionChoice),
  usage: Usage.nullable().optional(),
  timings: Timings.optional(),
}).describe('The data of one event of a streamed completion.');

export const Model = z.object({
  id: z.string(),
  object: z.literal('model'),
  created: Seconds,
  owned_by: z.string(),
  context_length: z.int().min(1).describe('An extension: prompt and answer, in tokens.'),
  max_model_len: z.int().min(1).describe("The same, as vLLM's clients look for it."),
  max_output_tokens: Count.describe('An extension: the longest answer, to a prompt of one token; 0 for a model that gives none.'),
  endpoints: z.array(z.string()).describe('An extension: calls that it answers.'),
  dimensions: z.int().min(1).optional().describe('An extension: numbers of its embeddings.'),
}) satisfies z.ZodType<ModelOut>;

export const ModelList = z.object({ object: z.literal('list'), data: z.array(Model) });

export const Embeddings = z.object({
  object: z.literal('list'),
  data: z.array(
    z.object({
      object: z.literal('embedding'),
      index: Count,
      embedding: z.union([z.array(z.number()), z.string()]).describe('Numbers, or with `base64` a text.'),
    }),
  ),
  model: z.string(),
  usage: z.object({ prompt_tokens: Count, total_tokens: Count }) satisfies z.ZodType<EmbeddingUsageOut>,
});

export const Tokens = z.object({
  count: Count,
  max_model_len: z.int().min(1).describe('Prompt and answer together, in tokens.'),
  tokens: z.array(Count),
  token_strs: z.array(z.string()).nullable().describe('Where `return_token_strs` asked for them.'),
}) satisfies z.ZodType<TokenizeOut>;

export const Detokenized = z.object({ prompt: z.string().describe('Control tokens are spelled.') }) satisfies z.ZodType<DetokenizeOut>;

export const CancelledStream = z.object({
  id: z.string(),
  object: z.literal('stream'),
  status: z.enum(['cancelled', 'finished']).describe('`finished`: it was over already.'),
});

export const Health = z.object({ status: z.literal('ok') });
export const Readiness = z.object({ status: z.literal('ready'), models: z.array(z.string()).min(1) });

const Limit = z.int().min(1).nullable().describe('Null is no limit.');
const Limits = z.object({
  requests_per_minute: Limit,
  tokens_per_minute: Limit,
  concurrent_requests: Limit,
  tokens_per_day: Limit,
}) satisfies z.ZodType<LimitsOut>;

export const Tenant = z.object({
  object: z.literal('tenant'),
  name: z.string(),
  created_at: Seconds.nullable(),
  limits: Limits,
  weight: z.number().describe('Its share of the batchers while others wait too, to theirs.'),
}) satisfies z.ZodType<TenantOut>;

export const DeletedTenant = z.object({ object: z.literal('tenant'), name: z.string(), deleted: z.literal(true) });

const KeyRecord = z.object({
  object: z.literal('key'),
  id: z.string(),
  tenant: z.string(),
  name: z.string(),
  scopes: z.array(z.enum(['infer', 'admin'])),
  limits: Limits,
  created_at: Seconds,
  expires_at: Seconds.nullable(),
  revoked_at: Seconds.nullable(),
});

export const Key = KeyRecord satisfies z.ZodType<KeyOut>;
export const NewKey = KeyRecord.extend({ key: z.string().describe('Shown this once, and kept nowhere.') }) satisfies z.ZodType<KeyOut>;

const UsageRow = z.object({
  object: z.literal('usage'),
  date: z.iso.date().describe('UTC day on which the requests were let in.'),
  key_id: z.string(),
  model: z.string(),
  requests: Count,
  prompt_tokens: Count,
  cached_tokens: Count,
  completion_tokens: Count,
}) satisfies z.ZodType<UsageRowOut>;

export const Batcher = z.object({
  object: z.literal('batcher'),
  id: z.string(),
  model: z.string(),
  state: z.enum(['serving', 'draining', 'stale']).describe('`stale`: it has not been heard of for some seconds.'),
  context_tokens: Count,
  started_at: Seconds,
  seen_at: Seconds,
  running_count: Count,
  waiting_count: Count,
  max_running_count: Count,
  kv_capacity_tokens: Count,
  kv_used_tokens: Count,
  prefill_tokens_per_second: z.number(),
  decode_tokens_per_second: z.number(),
  prompt_tokens_per_second_now: z.number().describe('Of prompts, since it was seen before; all requests together.'),
  generated_tokens_per_second_now: z.number().describe('Of answers, likewise.'),
  request_tokens_per_second_now: z.number().describe('Of one answer, on average.'),
}) satisfies z.ZodType<BatcherOut>;

const Queue = z.object({
  object: z.literal('queue'),
  model: z.string(),
  kind: z
    .enum(['shared', 'own', 'quick'])
    .describe("`shared` by the model's batchers, `own` for one of them, `quick` for what needs no row."),
  batcher_id: z.string().nullable().describe('Whose own.'),
  waiting_count: Count,
}) satisfies z.ZodType<QueueOut>;

export const Scale = z.object({
  object: z.literal('scale'),
  model: z.string(),
  desired_batchers: Count,
  serving_batchers: Count,
  requests_per_second: z.number().describe('Taken by its batchers, over about the last minute.'),
  waiting_requests: Count.describe('Queued, held, or taken by a batcher that has no row for them.'),
  knee_requests_per_second: z.number().nullable().describe('What one batcher sustains; null where SLUICE_KNEE does not say it.'),
  knee_ratio: z.number().nullable().describe('The rate beside what all serving batchers sustain; 1 is at the knee.'),
  queue_seconds: z.number().nullable().describe('Until the requests that wait have been taken, at the rate that batchers sustain.'),
}) satisfies z.ZodType<ScaleOut>;

export const TenantList = listOf(Tenant) satisfies z.ZodType<ListOut<TenantOut>>;
export const KeyList = listOf(Key) satisfies z.ZodType<ListOut<KeyOut>>;
export const UsageList = listOf(UsageRow) satisfies z.ZodType<ListOut<UsageRowOut>>;
export const QueueList = listOf(Queue) satisfies z.ZodType<ListOut<QueueOut>>;
export const BatcherList = listOf(Batcher) satisfies z.ZodType<ListOut<BatcherOut>>;

function listOf<T extends z.ZodType>(item: T) {
  return z.object({ object: z.literal('list'), data: z.array(item), has_more: z.boolean().describe('More than fit in this reply.') });
}
