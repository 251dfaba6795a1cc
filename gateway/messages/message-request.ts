/**
 * MessageRequest: the bodies of POST /v1/messages and /v1/messages/count_tokens as the fields of a Job. Fields of Anthropic's contract whose
 * function is missing here are refused by name; fields that nobody knows are left alone.
 */
import { z } from 'zod';
import type { Job, Structure } from '../../shared/job.ts';
import { checkTools, jobTools } from '../callable-tools.ts';
import { checkMessageCount, promptOutlook } from '../chat-request.ts';
import {
  type Complain,
  checkGeneration,
  complainTo,
  GENERATION_FIELDS,
  given,
  MAX_STOPS,
  ModelName,
  StopText,
  samplingOf,
  serviceClassOf,
  stoppingOf,
  unsupported,
} from '../generation-fields.ts';
import type { JsonObject } from '../json-body.ts';
import { byteCount, MAX_TEXT_BYTES, quickFields } from '../quick-request.ts';
import { custom, refusal } from '../refusal.ts';
import type { Posted } from '../routes/posted-job.ts';
import { Schema } from '../structure-fields.ts';
import { ChatTemplateKwargs } from '../template-values.ts';
import { callableTools, TOOL_FIELDS } from './message-tools.ts';
import { conversation, MessageTurn, SystemPrompt } from './message-turns.ts';

const { n: _n, stop: _stop, stream_options: _options, user: _user, ...EXTENSIONS } = GENERATION_FIELDS;
const FORMAT_PARAM = 'output_config.format';

/** What the prompt is made of, and what may be said beside it. */
const PROMPT_FIELDS = {
  model: ModelName,
  // Before all that a client leaves out of a thread: it is to hear of the thread.
  thread: z
    .unknown()
    .optional()
    .refine(thread => thread === undefined || thread === null, {
      message: "'thread' is not supported: no conversation is kept here. Send all of it each time.",
      ...custom('thread_unsupported_request'),
    })
    .meta({ type: 'null', description: 'Of the contract, and not supported here.' }),
  ...TOOL_FIELDS,
  chat_template_kwargs: ChatTemplateKwargs,
  messages: z
    .array(MessageTurn)
    .min(1)
    .meta({ examples: [[{ role: 'user', content: 'What is the capital of France?' }]] }),
  system: SystemPrompt.nullish().describe('In front of the messages.'),
  output_config: z
    .looseObject({ format: z.object({ type: z.literal('json_schema'), schema: Schema }).nullish() })
    .nullish()
    .describe('With a `format` the answer is a JSON value of its schema. `effort` has no effect.'),
  thinking: z
    .looseObject({ type: z.enum(['enabled', 'adaptive', 'disabled']), budget_tokens: z.int().min(1).nullish() })
    .nullish()
    .describe(
      "Whether the model's template lets it think first, where it has a choice: `disabled` when absent. With `enabled`, thinking ends after `budget_tokens`; `max_tokens` bounds both.",
    ),

  // Of the contract, and not here yet: said so, since to ignore them would change what the answer means.
  container: unsupported('container'),
  mcp_servers: z.array(z.unknown()).max(0, "'mcp_servers' is not supported").nullish().describe('Only an empty array.'),
};

export const MessageBody = z
  .looseObject({
    ...EXTENSIONS,
    ...PROMPT_FIELDS,
    max_tokens: z
      .int()
      .min(1)
      .meta({ description: 'Most tokens of the answer.', examples: [64] }),
    temperature: z.number().min(0).max(1).nullish().describe('0 is greedy; 1 when absent.'),
    stop_sequences: z.array(StopText).max(MAX_STOPS).nullish().describe('Strings that end the answer; they are no part of it.'),
    service_tier: z
      .enum(['auto', 'standard_only', 'default', 'flex', 'priority'])
      .nullish()
      .describe('`flex` and `priority` are extensions: the class in the queue.'),
    metadata: z
      .looseObject({ user_id: z.string().max(4096).nullish() })
      .nullish()
      .describe('Taken, and without effect.'),
  })
  .superRefine((body, context) => {
    const complain = complainTo(context, body);
    checkPrompt(body, complain);
    checkGeneration({ ...body, service_tier: undefined }, body.max_tokens, complain);
  });

export const TokenCountBody = z.looseObject(PROMPT_FIELDS).superRefine((body, context) => {
  const complain = complainTo(context, body);
  checkPrompt(body, complain);
  if (byteCount([body.system, body.messages, jobTools(callableTools(body)).tools]) > MAX_TEXT_BYTES) {
    complain('messages', `A conversation to be counted may have at most ${MAX_TEXT_BYTES} bytes.`);
  }
});

const PromptBody = z.object(PROMPT_FIELDS);

function checkPrompt(body: z.output<typeof PromptBody>, complain: Complain): void {
  checkTools(callableTools(body), undefined, complain);
}

/** What the client has for the template goes before what follows from `thinking`. */
function templateValuesOf({ thinking, chat_template_kwargs }: z.output<typeof PromptBody>) {
  return { enable_thinking: thinking?.type === 'enabled' || thinking?.type === 'adaptive', ...chat_template_kwargs };
}

function thinkingBudget({ thinking }: Pick<z.output<typeof PromptBody>, 'thinking'>): number | undefined {
  return thinking?.type === 'enabled' ? (thinking.budget_tokens ?? undefined) : undefined;
}

/** Throws the ApiError of the first fault. */
export function parseMessageRequest(body: JsonObject, bounds: { maxMessageCount: number }): Posted {
  checkMessageCount(body, bounds);
  const parsed = MessageBody.safeParse(body, { reportInput: true });
  if (!parsed.success) throw refusal(parsed.error);
  const request = { ...parsed.data, stream_options: undefined, stop: parsed.data.stop_sequences };
  const { service_tier, ...generation } = request;
  const messages = conversation(request.system ?? undefined, request.messages);
  const structure = structureOf(request);
  const { tools, toolUse } = jobTools(callableTools(request));
  return {
    job: {
      model: request.model,
      prompt: { kind: 'chat', messages, ...given('tools', tools), templateValues: templateValuesOf(request) },
      sampling: samplingOf(generation, undefined),
      stopping: { ...stoppingOf(generation, request.max_tokens), ...given('maxReasoningTokens', thinkingBudget(request)) },
      ...given('structure', structure),
      ...given('toolUse', toolUse),
      choiceCount: 1,
      serviceClass: service_tier === 'standard_only' ? 'default' : serviceClassOf(service_tier),
    },
    ...promptOutlook(messages, { logit_bias: request.logit_bias, structure, tools, templateValues: request.chat_template_kwargs }),
    reply: { kind: 'message', isStreamed: request.stream ?? false },
  };
}

/** Throws the ApiError of the first fault. */
export function parseTokenCountRequest(body: JsonObject, bounds: { maxMessageCount: number }): Posted {
  checkMessageCount(body, bounds);
  const parsed = TokenCountBody.safeParse(body, { reportInput: true });
  if (!parsed.success) throw refusal(parsed.error);
  const { model, system, messages } = parsed.data;
  const { tools } = jobTools(callableTools(parsed.data));
  const job: Posted['job'] & Pick<Job, 'task'> = {
    ...quickFields({ model }),
    prompt: {
      kind: 'chat',
      messages: conversation(system ?? undefined, messages),
      ...given('tools', tools),
      templateValues: templateValuesOf(parsed.data),
    },
    task: { kind: 'tokenize', addSpecialTokens: true, addGenerationPrompt: true, tellTexts: false },
  };
  return { job, promptTokensBound: 0, isPromptUncertain: true, reply: { kind: 'count_tokens', isStreamed: false } };
}

function structureOf({ output_config }: Pick<z.output<typeof PromptBody>, 'output_config'>): Structure | undefined {
  const format = output_config?.format;
  return format ? { kind: 'schema', param: FORMAT_PARAM, schema: format.schema } : undefined;
}
