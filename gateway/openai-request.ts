/**
 * OpenaiRequest: the body of POST /v1/chat/completions as the fields of a Job; only what passes here goes further.
 * Fields of OpenAI's contract whose function is missing here are refused by name; fields that nobody knows are left alone.
 */
import { z } from 'zod';
import { ApiError } from '../shared/errors.ts';
import type { ChatMessage, Job, Sampling, ServiceClass, Stopping } from '../shared/job.ts';
import type { JsonObject } from './json-body.ts';
import { custom, refusal } from './refusal.ts';

/** What the client asked for, before it has an id, a tenant and a shard. */
export interface ChatRequest {
  job: Pick<Job, 'model' | 'prompt' | 'sampling' | 'stopping' | 'choiceCount' | 'serviceClass'>;
  isStreamed: boolean;
  includeUsage: boolean;
  /** No tokenizer and template of ours makes more prompt tokens of this conversation. */
  promptTokensBound: number;
}

const MAX_CHOICES = 8;
const MAX_STOPS = 16;
const MAX_STOP_LENGTH = 1024;
const MAX_BIASED_TOKENS = 1024;
const MAX_TOOL_CALLS = 128;
const DEFAULT_TEMPERATURE = 1;

/** A token stands for at least one byte of the rendered prompt; a template adds at most this much a message, and once. */
const TEMPLATE_TOKENS_PER_MESSAGE = 16;
const TEMPLATE_TOKENS = 256;

/** Well-formed, so that what is counted, tokenized and sent back are the same bytes. */
const Text = z.string().transform(text => text.toWellFormed());
const TextPart = z.object({ type: z.literal('text'), text: Text }).transform(part => part.text);
const RefusalPart = z.object({ type: z.literal('refusal'), refusal: Text }).transform(part => part.refusal);

/** Parts other than text are of the contract, but no model here sees or hears. */
const OtherPart = z
  .looseObject({ type: z.enum(['image_url', 'input_audio', 'file']) })
  .refine(() => false, { message: 'Only text content is supported.', ...custom('unsupported_parameter') })
  .transform(() => '');

const TextParts = z
  .array(z.discriminatedUnion('type', [TextPart, OtherPart]))
  .min(1)
  .transform(parts => parts.join(''));
const AssistantParts = z
  .array(z.discriminatedUnion('type', [TextPart, RefusalPart, OtherPart]))
  .min(1)
  .transform(parts => parts.join(''));

const CONTENT_FORMS = { error: 'expected a string or an array of text parts' };
const Content = z.union([Text, TextParts], CONTENT_FORMS);
const Name = z.string().min(1).max(64).nullish();

const ToolCall = z.object({
  id: z.string().min(1).max(256),
  type: z.literal('function'),
  function: z.object({ name: z.string().min(1).max(256), arguments: Text }),
});

const InstructionMessage = z
  .object({ role: z.enum(['system', 'developer']), content: Content, name: Name })
  .transform((message): ChatMessage => ({ role: 'system', content: message.content, ...named(message.name) }));

const UserMessage = z
  .object({ role: z.literal('user'), content: Content, name: Name })
  .transform((message): ChatMessage => ({ role: 'user', content: message.content, ...named(message.name) }));

const AssistantMessage = z
  .object({
    role: z.literal('assistant'),
    content: z.union([Text, AssistantParts, z.null()], CONTENT_FORMS).optional(),
    refusal: Text.nullish(),
    name: Name,
    tool_calls: z.array(ToolCall).max(MAX_TOOL_CALLS).nullish(),
    audio: unsupported('audio'),
    function_call: unsupported("'function_call', which 'tool_calls' has replaced"),
  })
  .transform((message, context): ChatMessage => {
    const toolCalls = message.tool_calls ?? [];
    const content = message.content ?? message.refusal ?? null;
    if (content === null && toolCalls.length === 0) {
      context.issues.push({
        code: 'custom',
        input: message,
        path: ['content'],
        message: "'content' may be null only in an assistant message that has 'tool_calls'.",
      });
      return z.NEVER;
    }
    return { role: 'assistant', content, ...named(message.name), ...(toolCalls.length > 0 && { toolCalls }) };
  });

const ToolMessage = z
  .object({ role: z.literal('tool'), content: Content, tool_call_id: z.string().min(1).max(256) })
  .transform((message): ChatMessage => ({ role: 'tool', content: message.content, toolCallId: message.tool_call_id }));

const Message = z.discriminatedUnion('role', [InstructionMessage, UserMessage, AssistantMessage, ToolMessage]);

const StopText = z.string().min(1).max(MAX_STOP_LENGTH);

const ChatBody = z
  .looseObject({
    model: z.string().min(1).max(256),
    messages: z.array(Message).min(1),

    temperature: z.number().min(0).max(2).nullish(),
    top_p: z.number().gt(0).max(1).nullish(),
    presence_penalty: z.number().min(-2).max(2).nullish(),
    frequency_penalty: z.number().min(-2).max(2).nullish(),
    logit_bias: z
      .record(z.string().regex(/^\d{1,9}$/, 'keys must be token ids'), z.number().min(-100).max(100))
      .refine(bias => Object.keys(bias).length <= MAX_BIASED_TOKENS, {
        message: `'logit_bias' may name at most ${MAX_BIASED_TOKENS} tokens.`,
      })
      .nullish(),
    seed: z.int().nullish(),
    logprobs: z.boolean().nullish(),
    top_logprobs: z.int().min(0).max(20).nullish(),

    // Extensions under the names that other servers gave them.
    top_k: z.int().min(-1).nullish(),
    min_p: z.number().min(0).max(1).nullish(),
    typical_p: z.number().gt(0).max(1).nullish(),
    repetition_penalty: z.number().gt(0).max(10).nullish(),
    min_tokens: z.int().min(0).nullish(),
    ignore_eos: z.boolean().nullish(),

    n: z.int().min(1).max(MAX_CHOICES).nullish(),
    stop: z.union([StopText, z.array(StopText).max(MAX_STOPS)], { error: 'expected a string or an array of strings' }).nullish(),
    max_tokens: z.int().min(1).nullish(),
    max_completion_tokens: z.int().min(1).nullish(),

    stream: z.boolean().nullish(),
    stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
    service_tier: z.enum(['auto', 'default', 'flex', 'priority', 'scale']).nullish(),

    // Of the contract, and without effect on the answer here.
    user: z.string().max(4096).nullish(),
    store: z.boolean().nullish(),
    metadata: z.record(z.string(), z.string()).nullish(),
    parallel_tool_calls: z.boolean().nullish(),

    // Of the contract, and not here yet: said so, since to ignore them would change what the answer means.
    tools: z.array(z.unknown()).nullish(),
    tool_choice: z.unknown().optional(),
    functions: unsupported('functions'),
    function_call: unsupported('function_call'),
    response_format: z.looseObject({ type: z.string() }).nullish(),
    modalities: z.array(z.string()).nullish(),
    audio: unsupported('audio'),
    web_search_options: unsupported('web_search_options'),
  })
  .superRefine((body, context) => {
    const complain = (param: string, message: string, code: Parameters<typeof custom>[0] = 'invalid_value') =>
      context.addIssue({ code: 'custom', path: [param], message, input: body[param], ...custom(code) });
    const maxTokens = body.max_completion_tokens ?? body.max_tokens;
    if (body.tools && body.tools.length > 0) complain('tools', "'tools' is not supported.", 'unsupported_parameter');
    if (body.tool_choice && body.tool_choice !== 'none' && body.tool_choice !== 'auto') {
      complain('tool_choice', "'tool_choice' is not supported.", 'unsupported_parameter');
    }
    if (typeof body.response_format?.type === 'string' && body.response_format.type !== 'text') {
      complain(
        'response_format',
        `A 'response_format' of type '${body.response_format.type.slice(0, 64)}' is not supported.`,
        'unsupported_parameter',
      );
    }
    if (body.modalities?.some(modality => modality !== 'text')) {
      complain('modalities', "Only the modality 'text' is supported.", 'unsupported_parameter');
    }
    if (typeof body.top_logprobs === 'number' && body.logprobs !== true) {
      complain('top_logprobs', "'top_logprobs' may be given only when 'logprobs' is true.");
    }
    if (body.stream_options && body.stream !== true) {
      complain('stream_options', "'stream_options' may be given only when 'stream' is true.");
    }
    if (typeof maxTokens === 'number' && (body.min_tokens ?? 0) > maxTokens) {
      complain('min_tokens', `'min_tokens' is ${body.min_tokens}, more than the ${maxTokens} tokens that may be generated.`);
    }
  });

type ChatBody = z.output<typeof ChatBody>;

/** Throws the ApiError of the first fault. Whether the model exists is for whoever knows the batchers. */
export function parseChatRequest(body: JsonObject, bounds: { maxMessageCount: number }): ChatRequest {
  // Before the schema looks at every message.
  if (Array.isArray(body.messages) && body.messages.length > bounds.maxMessageCount) {
    throw new ApiError('invalid_value', `Invalid value for 'messages': the number of elements must be at most ${bounds.maxMessageCount}.`, {
      param: 'messages',
    });
  }
  const parsed = ChatBody.safeParse(body, { reportInput: true });
  if (!parsed.success) throw refusal(parsed.error);
  const request = parsed.data;
  checkToolMessages(request.messages);
  return {
    job: {
      model: request.model,
      prompt: { kind: 'chat', messages: request.messages },
      sampling: samplingOf(request),
      stopping: stoppingOf(request),
      choiceCount: request.n ?? 1,
      serviceClass: serviceClassOf(request.service_tier),
    },
    isStreamed: request.stream ?? false,
    includeUsage: request.stream_options?.include_usage ?? false,
    promptTokensBound: promptTokensBound(request.messages),
  };
}

/** A tool's answer belongs to a call that an assistant made before it. */
function checkToolMessages(messages: readonly ChatMessage[]): void {
  const callIds = new Set<string>();
  for (const [index, message] of messages.entries()) {
    for (const call of message.toolCalls ?? []) callIds.add(call.id);
    if (message.role !== 'tool' || callIds.has(message.toolCallId!)) continue;
    const param = `messages[${index}].tool_call_id`;
    throw new ApiError('invalid_value', `Invalid value for '${param}': no earlier assistant message has a tool call of this id.`, {
      param,
    });
  }
}

function samplingOf(request: ChatBody): Sampling {
  const topK = request.top_k ?? 0;
  return {
    temperature: request.temperature ?? DEFAULT_TEMPERATURE,
    ...given('topP', request.top_p),
    // 0 and -1 are how others write "all".
    ...given('topK', topK > 0 ? topK : undefined),
    ...given('minP', request.min_p),
    ...given('typicalP', request.typical_p),
    ...given('presencePenalty', request.presence_penalty),
    ...given('frequencyPenalty', request.frequency_penalty),
    ...given('repetitionPenalty', request.repetition_penalty),
    ...given('logitBias', request.logit_bias),
    ...given('seed', request.seed),
    ...given('topLogprobs', request.logprobs === true ? (request.top_logprobs ?? 0) : undefined),
  };
}

function stoppingOf(request: ChatBody): Stopping {
  const stop = typeof request.stop === 'string' ? [request.stop] : (request.stop ?? []);
  return {
    ...given('maxTokens', request.max_completion_tokens ?? request.max_tokens),
    ...given('minTokens', request.min_tokens),
    ...given('stop', stop.length > 0 ? stop : undefined),
    ...given('ignoreEos', request.ignore_eos),
  };
}

function serviceClassOf(tier: ChatBody['service_tier']): ServiceClass {
  return tier === 'priority' || tier === 'flex' ? tier : 'default';
}

function promptTokensBound(messages: readonly ChatMessage[]): number {
  const encoder = new TextEncoder();
  const byteCount = (text: string | null | undefined) => (text ? encoder.encode(text).byteLength : 0);
  let bound = TEMPLATE_TOKENS;
  for (const message of messages) {
    bound += TEMPLATE_TOKENS_PER_MESSAGE + byteCount(message.content) + byteCount(message.name) + byteCount(message.toolCallId);
    if (message.toolCalls !== undefined) bound += byteCount(JSON.stringify(message.toolCalls));
  }
  return bound;
}

/** `exactOptionalPropertyTypes` wants absent fields absent, and a job on the queue is the shorter for it. */
function given<K extends string, V>(key: K, value: V | null | undefined): { [P in K]?: V } {
  return (value === undefined || value === null ? {} : { [key]: value }) as { [P in K]?: V };
}

function named(name: string | null | undefined): { name?: string } {
  return given('name', name);
}

/** Null is as good as absent; anything else is refused. */
function unsupported(field: string) {
  return z
    .unknown()
    .optional()
    .refine(value => value === undefined || value === null, {
      message: `'${field}' is not supported.`,
      ...custom('unsupported_parameter'),
    });
}
