/**
 * ResponseRequest: the body of POST /v1/responses as the fields of a Job, and what of it every reply repeats. Fields of OpenAI's contract whose
 * function is missing here are refused by name; fields that nobody knows are left alone.
 */
import { z } from 'zod';
import type { ChatMessage, Job, Structure } from '../../shared/job.ts';
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
import { custom, refusal } from '../refusal.ts';
import { SCHEMA_LABELS, Schema } from '../structure-fields.ts';
import type { ResponseEcho, TextFormatOut } from './response-object.ts';

const { n: _n, stream_options: _options, ...FIELDS } = GENERATION_FIELDS;

const MAX_METADATA = 16;
const FORMAT_PARAM = 'text.format';

const Part = z
  .object({ type: z.enum(['input_text', 'output_text', 'text']), text: Text })
  .transform(part => part.text)
  .meta({ description: 'Text, of the client or of an earlier answer.' });
const RefusalPart = z.object({ type: z.literal('refusal'), refusal: Text }).transform(part => part.refusal);
const OtherPart = z
  .looseObject({ type: z.enum(['input_image', 'input_file', 'input_audio']) })
  .refine(() => false, { message: 'Only text content is supported.', ...custom('unsupported_parameter') })
  .transform(() => '')
  .meta({ deprecated: true, description: 'Of the contract, and refused here: no model sees or hears.' });

const Content = z.union(
  [
    Text,
    z
      .array(z.discriminatedUnion('type', [Part, RefusalPart, OtherPart]))
      .min(1)
      .transform(parts => parts.join('')),
  ],
  { error: 'expected a string or an array of text parts' },
);

const TextFormat = z.discriminatedUnion('type', [
  z.object({ type: z.literal('text') }),
  z.object({ type: z.literal('json_object') }),
  z.object({
    type: z.literal('json_schema'),
    ...SCHEMA_LABELS,
    schema: Schema,
  }),
]);

const Role = z.enum(['user', 'assistant', 'system', 'developer']);
const MessageItem = z
  .object({ type: z.literal('message').optional(), role: Role, content: Content })
  .transform(({ role, content }): ChatMessage => ({ role: role === 'developer' ? 'system' : role, content }));

export const ResponseBody = z
  .looseObject({
    ...FIELDS,
    input: z
      .union([Text, z.array(MessageItem).min(1)], { error: 'expected a string or an array of messages' })
      .meta({ examples: ['What is the capital of France?'] }),
    instructions: Text.nullish().describe('A system message in front of the input.'),
    max_output_tokens: z.int().min(1).nullish().describe('As many as the context holds when absent.'),
    background: z.boolean().nullish().describe('It is answered without its client, who comes back for it.'),
    store: z.boolean().nullish().describe('False: it cannot be asked for again.'),
    metadata: z
      .record(z.string().max(64), z.string().max(512))
      .refine(metadata => Object.keys(metadata).length <= MAX_METADATA, { message: `'metadata' may have at most ${MAX_METADATA} entries.` })
      .nullish(),
    stream_options: z.looseObject({}).nullish(),

    // Of the contract, and without effect on the answer here.
    parallel_tool_calls: z.boolean().nullish(),
    truncation: z.enum(['auto', 'disabled']).nullish().describe('Only `disabled`.'),
    text: z.looseObject({ format: TextFormat.nullish() }).nullish().describe('The form of the answer.'),

    // Of the contract, and not here yet: said so, since to ignore them would change what the answer means.
    tools: z.array(z.unknown()).nullish().describe('Not supported; an empty array is let through.'),
    tool_choice: z.unknown().optional().describe('Only `none` and `auto`.'),
    top_logprobs: z.int().min(0).max(20).nullish().describe('Only 0.'),
    previous_response_id: unsupported('previous_response_id'),
    conversation: unsupported('conversation'),
    prompt: unsupported('prompt'),
  })
  .superRefine((body, context) => {
    const complain = complainTo(context, body);
    const refuse = (param: string, what: string) => complain(param, `${what} is not supported.`, 'unsupported_parameter');
    if (body.tools && body.tools.length > 0) refuse('tools', "'tools'");
    if (body.tool_choice && body.tool_choice !== 'none' && body.tool_choice !== 'auto') refuse('tool_choice', "'tool_choice'");
    if (body.top_logprobs) refuse('top_logprobs', "'top_logprobs'");
    if (body.truncation === 'auto') refuse('truncation', "A 'truncation' of 'auto'");
    if (body.background === true && body.store === false) complain('store', "'store' may not be false when 'background' is true.");
    checkGeneration({ ...body, stream_options: undefined }, body.max_output_tokens ?? undefined, complain);
  });

export interface ResponseRequest {
  job: Pick<Job, 'model' | 'prompt' | 'sampling' | 'stopping' | 'structure' | 'choiceCount' | 'serviceClass'>;
  isStreamed: boolean;
  isBackground: boolean;
  isStored: boolean;
  echo: ResponseEcho;
  promptTokensBound: number;
  isPromptUncertain: boolean;
}

/** Throws the ApiError of the first fault. */
export function parseResponseRequest(body: JsonObject, bounds: { maxMessageCount: number }): ResponseRequest {
  checkMessageCount(body, bounds, 'input');
  const parsed = ResponseBody.safeParse(body, { reportInput: true });
  if (!parsed.success) throw refusal(parsed.error);
  const request = parsed.data;
  const { instructions = null, input, background, store } = request;
  const format = request.text?.format ?? { type: 'text' as const };
  const structure = structureOf(format);
  const messages: ChatMessage[] = [
    ...(instructions === null ? [] : [{ role: 'system' as const, content: instructions }]),
    ...(typeof input === 'string' ? [{ role: 'user' as const, content: input }] : input),
  ];
  return {
    job: {
      model: request.model,
      prompt: { kind: 'chat', messages },
      sampling: samplingOf({ ...request, stream_options: undefined }, undefined),
      stopping: stoppingOf({ ...request, stream_options: undefined }, request.max_output_tokens ?? undefined),
      ...given('structure', structure),
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
      service_tier: request.service_tier ?? 'default',
      temperature: request.temperature ?? 1,
      text: { format: formatOut(format) },
      tool_choice: request.tool_choice === 'none' ? 'none' : 'auto',
      top_p: request.top_p ?? 1,
      user: request.user ?? null,
    },
    ...promptOutlook(messages, { logit_bias: request.logit_bias, structure }),
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
