/**
 * ChatRequest: the body of POST /v1/chat/completions as the fields of a Job; only what passes here goes further.
 * Fields of OpenAI's contract whose function is missing here are refused by name; fields that nobody knows are left alone.
 */
import { z } from 'zod';
import { ApiError } from '../shared/errors.ts';
import type { ChatMessage, Job, Structure, Tool } from '../shared/job.ts';
import { checkTools, isNamed, jobTools } from './callable-tools.ts';
import { otherPart, RefusalPart } from './content-parts.ts';
import {
  checkGeneration,
  complainTo,
  GENERATION_FIELDS,
  given,
  samplingOf,
  serviceClassOf,
  stoppingOf,
  Text,
  unsupported,
} from './generation-fields.ts';
import type { JsonObject } from './json-body.ts';
import { refusal } from './refusal.ts';
import { SparseSchema } from './sparse-schema.ts';
import { checkStructure, GUIDED_FIELDS, guidedFieldOf, ResponseFormat, structureOf } from './structure-fields.ts';
import { ChatTemplateKwargs } from './template-values.ts';
import { callableTools, TOOL_FIELDS } from './tool-fields.ts';

/** What the client asked for, before it has an id, a tenant and a shard. */
export interface ChatRequest {
  job: Pick<Job, 'model' | 'prompt' | 'sampling' | 'stopping' | 'structure' | 'toolUse' | 'choiceCount' | 'serviceClass'>;
  isStreamed: boolean;
  includeUsage: boolean;
  hasRunningUsage: boolean;
  /** It has to call one function by its name. */
  hasNamedCall: boolean;
  /** No tokenizer and template of ours makes more prompt tokens of this conversation. */
  promptTokensBound: number;
  /** A batcher may refuse it for what it asks of the vocabulary, of the template or of the answer's form: no reply may begin before it has been accepted. */
  isPromptUncertain: boolean;
}

const MAX_TOOL_CALLS = 128;
const encoder = new TextEncoder();

/** A token stands for at least one byte of the rendered prompt; a template adds at most this much a message, and once. */
const TEMPLATE_TOKENS_PER_MESSAGE = 16;
const TEMPLATE_TOKENS = 256;
/** Some templates set tools out over many lines, or write them twice; and say how they are called. */
const TOOL_REPEATS = 4;
const TOOL_TEMPLATE_TOKENS = 2_048;

const TextPart = z.object({ type: z.literal('text'), text: Text }).transform(part => part.text);
const OtherPart = otherPart(['image_url', 'input_audio', 'file'], '');

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
    reasoning_content: Text.nullish().describe("An extension: an earlier answer's reasoning, for templates that have a use for it."),
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
    const reasoning = given('reasoning', message.reasoning_content);
    return { role: 'assistant', content, ...named(message.name), ...reasoning, ...(toolCalls.length > 0 && { toolCalls }) };
  });

const ToolMessage = z
  .object({ role: z.literal('tool'), content: Content, tool_call_id: z.string().min(1).max(256) })
  .transform((message): ChatMessage => ({ role: 'tool', content: message.content, toolCallId: message.tool_call_id }));

export const Message = z.discriminatedUnion('role', [InstructionMessage, UserMessage, AssistantMessage, ToolMessage]);

export const ChatBody = z
  .looseObject({
    ...GENERATION_FIELDS,
    ...GUIDED_FIELDS,
    ...TOOL_FIELDS,
    response_format: ResponseFormat,
    chat_template_kwargs: ChatTemplateKwargs,
    messages: z
      .array(Message)
      .min(1)
      .meta({ examples: [[{ role: 'user', content: 'What is the capital of France?' }]] }),
    max_tokens: z.int().min(1).nullish().describe('The older name of `max_completion_tokens`.'),
    max_completion_tokens: z.int().min(1).nullish().describe('Most tokens of each choice; as many as the context holds when absent.'),
    logprobs: z.boolean().nullish().describe('The log-probability of each token of the answer.'),
    top_logprobs: z.int().min(0).max(20).nullish().describe('With it the so many likeliest tokens at each place.'),

    // Of the contract, and without effect on the answer here.
    store: z.boolean().nullish(),
    metadata: z.record(z.string(), z.string()).nullish(),

    // Of the contract, and not here yet: said so, since to ignore them would change what the answer means.
    functions: unsupported('functions'),
    function_call: unsupported('function_call'),
    modalities: z.array(z.string()).nullish().describe('Only `text`.'),
    audio: unsupported('audio'),
    web_search_options: unsupported('web_search_options'),
  })
  .superRefine((body, context) => {
    const complain = complainTo(context, body);
    checkStructure(body, complain);
    checkTools(callableTools(body), guidedFieldOf(body), complain);
    if (body.modalities?.some(modality => modality !== 'text')) {
      complain('modalities', "Only the modality 'text' is supported.", 'unsupported_parameter');
    }
    if (typeof body.top_logprobs === 'number' && body.logprobs !== true) {
      complain('top_logprobs', "'top_logprobs' may be given only when 'logprobs' is true.");
    }
    checkGeneration(body, maxTokensOf(body), complain);
  });

export type ChatBody = z.output<typeof ChatBody>;

const sparseBody = new SparseSchema(ChatBody);

/** Throws the ApiError of the first fault. Whether the model exists is for whoever knows the batchers. */
export function parseChatRequest(body: JsonObject, bounds: { maxMessageCount: number }): ChatRequest {
  checkMessageCount(body, bounds);
  const parsed = sparseBody.safeParse(body);
  if (!parsed.success) throw refusal(parsed.error);
  const request = parsed.data;
  checkToolMessages(request.messages);
  const { tools, toolUse } = jobTools(callableTools(request));
  const structure = structureOf(request);
  const templateValues = request.chat_template_kwargs;
  return {
    job: {
      model: request.model,
      prompt: { kind: 'chat', messages: request.messages, ...given('tools', tools), ...given('templateValues', templateValues) },
      sampling: samplingOf(request, request.logprobs === true ? (request.top_logprobs ?? 0) : undefined),
      stopping: stoppingOf(request, maxTokensOf(request)),
      ...given('structure', structure),
      ...given('toolUse', toolUse),
      choiceCount: request.n ?? 1,
      serviceClass: serviceClassOf(request.service_tier),
    },
    isStreamed: request.stream ?? false,
    includeUsage: request.stream_options?.include_usage ?? false,
    hasRunningUsage: request.stream_options?.continuous_usage_stats ?? false,
    hasNamedCall: isNamed(request.tool_choice),
    ...promptOutlook(request.messages, { logit_bias: request.logit_bias, structure, tools, templateValues }),
  };
}

/** Before a schema looks at every message. */
export function checkMessageCount(body: JsonObject, { maxMessageCount }: { maxMessageCount: number }, param = 'messages'): void {
  const messages = body[param];
  if (!Array.isArray(messages) || messages.length <= maxMessageCount) return;
  throw new ApiError('invalid_value', `Invalid value for '${param}': the number of elements must be at most ${maxMessageCount}.`, {
    param,
  });
}

/** What is known of a conversation before it is rendered: the most tokens that it has, and whether a batcher may still refuse it. */
export function promptOutlook(
  messages: readonly ChatMessage[],
  asked: {
    logit_bias?: object | null | undefined;
    structure: Structure | undefined;
    tools?: readonly Tool[] | undefined;
    templateValues?: object | null | undefined;
  },
): { promptTokensBound: number; isPromptUncertain: boolean } {
  return {
    promptTokensBound: promptTokensBound(messages, asked.tools),
    isPromptUncertain: Boolean(asked.logit_bias ?? asked.templateValues ?? asked.structure ?? asked.tools) || !isPlainTalk(messages),
  };
}

/** The order of roles that every chat template renders: perhaps a system message, then user and assistant in turn. Others some refuse. */
function isPlainTalk(messages: readonly ChatMessage[]): boolean {
  const turns = messages[0]?.role === 'system' ? messages.slice(1) : messages;
  return turns.length > 0 && turns.every(({ role, toolCalls }, index) => role === (index % 2 === 0 ? 'user' : 'assistant') && !toolCalls);
}

/** A tool's answer belongs to a call that an assistant made before it. */
export function checkToolMessages(messages: readonly ChatMessage[]): void {
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

function maxTokensOf(request: Pick<ChatBody, 'max_tokens' | 'max_completion_tokens'>): number | undefined {
  return request.max_completion_tokens ?? request.max_tokens ?? undefined;
}

function promptTokensBound(messages: readonly ChatMessage[], tools: readonly Tool[] = []): number {
  const byteCount = (text: string | null | undefined) => (text ? encoder.encode(text).byteLength : 0);
  let bound = TEMPLATE_TOKENS;
  for (const message of messages) {
    bound += TEMPLATE_TOKENS_PER_MESSAGE + byteCount(message.content) + byteCount(message.name) + byteCount(message.toolCallId);
    bound += byteCount(message.reasoning);
    if (message.toolCalls !== undefined) bound += byteCount(JSON.stringify(message.toolCalls));
  }
  if (tools.length > 0) bound += TOOL_TEMPLATE_TOKENS + TOOL_REPEATS * byteCount(JSON.stringify(tools));
  return bound;
}

function named(name: string | null | undefined): { name?: string } {
  return given('name', name);
}
