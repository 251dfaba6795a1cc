/**
 * ResponseRequest: the body of POST /v1/responses as the fields of a Job, and what of it every reply repeats. Fields of OpenAI's contract whose
 * function is missing here are refused by name; fields that nobody knows are left alone.
 */
import { z } from 'zod';
import { ApiError } from '../../shared/errors.ts';
import type { ChatMessage, Job, Structure } from '../../shared/job.ts';
import { checkTools, jobTools } from '../callable-tools.ts';
import { checkMessageCount, promptOutlook } from '../chat-request.ts';
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
} from '../generation-fields.ts';
import type { JsonObject } from '../json-body.ts';
import { refusal } from '../refusal.ts';
import { SCHEMA_LABELS, Schema } from '../structure-fields.ts';
import { ChatTemplateKwargs } from '../template-values.ts';
import { conversation, InputItem } from './response-items.ts';
import type { ResponseEcho, TextFormatOut } from './response-object.ts';
import { callableTools, TOOL_FIELDS, toolChoiceOut, toolsOut } from './response-tools.ts';

const { n: _n, stream_options: _options, ...FIELDS } = GENERATION_FIELDS;

const MAX_METADATA = 16;
const FORMAT_PARAM = 'text.format';

const TextFormat = z.discriminatedUnion('type', [
  z.object({ type: z.literal('text') }),
  z.object({ type: z.literal('json_object') }),
  z.object({
    type: z.literal('json_schema'),
    ...SCHEMA_LABELS,
    schema: Schema,
  }),
]);

export const ResponseBody = z
  .looseObject({
    ...FIELDS,
    input: z
      .union([Text, z.array(InputItem).min(1)], { error: 'expected a string or an array of items' })
      .meta({ examples: ['What is the capital of France?'] }),
    instructions: Text.nullish().describe('A system message in front of the input.'),
    previous_response_id: z
      .string()
      .max(128)
      .nullish()
      .describe('The input goes on from this response: from what it was asked, but for its instructions, and from its answer.'),
    ...TOOL_FIELDS,
    chat_template_kwargs: ChatTemplateKwargs,
    max_output_tokens: z.int().min(1).nullish().describe('As many as the context holds when absent.'),
    background: z.boolean().nullish().describe('It is answered without its client, who comes back for it.'),
    store: z.boolean().nullish().describe('False: it cannot be asked for again.'),
    metadata: z
      .record(z.string().max(64), z.string().max(512))
      .refine(metadata => Object.keys(metadata).length <= MAX_METADATA, { message: `'metadata' may have at most ${MAX_METADATA} entries.` })
      .nullish(),
    stream_options: z.looseObject({}).nullish(),

    // Of the contract, and without effect on the answer here.
    truncation: z.enum(['auto', 'disabled']).nullish().describe('Only `disabled`.'),
    text: z.looseObject({ format: TextFormat.nullish() }).nullish().describe('The form of the answer.'),

    // Of the contract, and not here yet: said so, since to ignore them would change what the answer means.
    top_logprobs: z.int().min(0).max(20).nullish().describe('Only 0.'),
    conversation: unsupported('conversation'),
    prompt: unsupported('prompt'),
  })
  .superRefine((body, context) => {
    const complain = complainTo(context, body);
    const refuse = (param: string, what: string) => complain(param, `${what} is not supported.`, 'unsupported_parameter');
    checkTools(callableTools(body), undefined, complain);
    if (body.top_logprobs) refuse('top_logprobs', "'top_logprobs'");
    if (body.truncation === 'auto') refuse('truncation', "A 'truncation' of 'auto'");
    if (body.background === true && body.store === false) complain('store', "'store' may not be false when 'background' is true.");
    checkGeneration({ ...body, stream_options: undefined }, body.max_output_tokens ?? undefined, complain);
  });

export interface ResponseRequest {
  job: Pick<Job, 'model' | 'prompt' | 'sampling' | 'stopping' | 'structure' | 'toolUse' | 'choiceCount' | 'serviceClass'>;
  isStreamed: boolean;
  isBackground: boolean;
  isStored: boolean;
  echo: ResponseEcho;
  promptTokensBound: number;
  isPromptUncertain: boolean;
}

export type AskedResponse = z.output<typeof ResponseBody>;

/** Throws the ApiError of the first fault. What lies between its input and an earlier response is for `responseRequest`. */
export function parseResponseBody(body: JsonObject, bounds: { maxMessageCount: number }): AskedResponse {
  checkMessageCount(body, bounds, 'input');
  const parsed = ResponseBody.safeParse(body, { reportInput: true });
  if (!parsed.success) throw refusal(parsed.error);
  return parsed.data;
}

/** `before`: the conversation that its input goes on from. Throws an ApiError for an input that does not go on from it. */
export function responseRequest(
  request: AskedResponse,
  before: readonly ChatMessage[],
  { maxMessageCount }: { maxMessageCount: number },
): ResponseRequest {
  const { instructions = null, input, background, store } = request;
  const format = request.text?.format ?? { type: 'text' as const };
  const structure = structureOf(format);
  const said = typeof input === 'string' ? [...before, { role: 'user' as const, content: input }] : conversation(before, input);
  if (said.length > maxMessageCount) {
    const message = `Invalid value for 'input': with the responses before it the conversation has more than ${maxMessageCount} messages.`;
    throw new ApiError('invalid_value', message, { param: 'input' });
  }
  const messages: ChatMessage[] = [...(instructions === null ? [] : [{ role: 'system' as const, content: instructions }]), ...said];
  const { tools, toolUse } = jobTools(callableTools(request));
  const templateValues = request.chat_template_kwargs;
  return {
    job: {
      model: request.model,
      prompt: { kind: 'chat', messages, ...given('tools', tools), ...given('templateValues', templateValues) },
      sampling: samplingOf({ ...request, stream_options: undefined }, undefined),
      stopping: stoppingOf({ ...request, stream_options: undefined }, request.max_output_tokens ?? undefined),
      ...given('structure', structure),
      ...given('toolUse', toolUse),
      choiceCount: 1,
      serviceClass: serviceClassOf(request.service_tier),
    },
    isStreamed: request.stream ?? false,
    isBackground: background ?? false,
    isStored: store ?? true,
    echo: {
      instructions,
      max_output_tokens: request.max_output_tokens ?? null,
      metadata: request.metadata ?? {},
      parallel_tool_calls: request.parallel_tool_calls ?? true,
      previous_response_id: request.previous_response_id ?? null,
      service_tier: request.service_tier ?? 'default',
      temperature: request.temperature ?? 1,
      text: { format: formatOut(format) },
      tool_choice: toolChoiceOut(request.tool_choice),
      tools: toolsOut(request.tools),
      top_p: request.top_p ?? 1,
      user: request.user ?? null,
    },
    ...promptOutlook(messages, { logit_bias: request.logit_bias, structure, tools, templateValues }),
  };
}

type Format = z.output<typeof TextFormat>;

function structureOf(format: Format): Structure | undefined {
  if (format.type === 'json_object') return { kind: 'json', param: FORMAT_PARAM };
  return format.type === 'json_schema' ? { kind: 'schema', param: FORMAT_PARAM, schema: format.schema } : undefined;
}

function formatOut(format: Format): TextFormatOut {
  if (format.type !== 'json_schema') return format;
  const { type, name, schema, description = null, strict = null } = format;
  return { type, name, schema, description, strict: strict ?? true };
}
