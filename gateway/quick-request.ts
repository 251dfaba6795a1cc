/**
 * QuickRequest: the bodies of POST /tokenize and /detokenize, vLLM's, as the fields of a Job. What they ask is answered from the vocabulary
 * alone, and what is sent is bounded so that no answer takes long.
 */
import { z } from 'zod';
import type { Job, Prompt } from '../shared/job.ts';
import { checkToolList, promptTools } from './callable-tools.ts';
import { checkMessageCount, checkToolMessages, Message } from './chat-request.ts';
import { complainTo, given, ModelName, ServiceTier, serviceClassOf, Text, unsupported } from './generation-fields.ts';
import type { JsonObject } from './json-body.ts';
import { MAX_TOKEN_ID } from './prompt-forms.ts';
import { refusal } from './refusal.ts';
import { ChatTemplateKwargs } from './template-values.ts';
import { TOOL_WORDS, Tools, toolList } from './tool-fields.ts';

export type QuickRequest = Pick<Job, 'model' | 'task' | 'prompt' | 'sampling' | 'stopping' | 'choiceCount' | 'serviceClass'>;

/** Of all texts together. A text of this length takes about a second. */
export const MAX_TEXT_BYTES = 1 << 20;
const MAX_TOKEN_COUNT = 1 << 20;

const FIELDS = {
  model: ModelName.nullish(),
  service_tier: ServiceTier,
};

export const TokenizeBody = z
  .looseObject({
    ...FIELDS,
    prompt: Text.nullish().meta({ description: 'A text, or `messages` in its place.', examples: ['The capital of France is'] }),
    messages: z.array(Message).min(1).nullish().describe('A conversation, which the chat template of the model renders first.'),
    add_special_tokens: z
      .boolean()
      .nullish()
      .describe('Of a text: with the tokens that the model wants around it; true when absent. A rendered conversation has them anyway.'),
    add_generation_prompt: z
      .boolean()
      .nullish()
      .describe("Of a conversation: with the beginning of the assistant's turn; true when absent."),
    tools: Tools.nullish().describe('Of a conversation: functions that its template tells of.'),
    return_token_strs: z.boolean().nullish().describe("With each token's text."),
    continue_final_message: z.literal(false, { error: "'continue_final_message' is not supported" }).nullish(),
    chat_template: unsupported('chat_template'),
    chat_template_kwargs: ChatTemplateKwargs,
  })
  .superRefine((body, context) => {
    const complain = complainTo(context, body);
    const hasPrompt = typeof body.prompt === 'string';
    if (hasPrompt && body.messages) complain('messages', "'prompt' and 'messages' cannot be given both.");
    if (!hasPrompt && !body.messages) complain('prompt', "Missing required parameter: 'prompt'.", 'missing_required_parameter');
    if (body.tools) checkToolList(toolList(body.tools), TOOL_WORDS, complain);
    if (byteCount([body.prompt, body.messages]) > MAX_TEXT_BYTES) {
      complain(hasPrompt ? 'prompt' : 'messages', `A text to be tokenized may have at most ${MAX_TEXT_BYTES} bytes.`);
    }
  });

export const DetokenizeBody = z.looseObject({
  ...FIELDS,
  tokens: z
    .array(z.int().min(0).max(MAX_TOKEN_ID))
    .max(MAX_TOKEN_COUNT)
    .meta({ examples: [[504, 3575]] }),
});

/** Throws the ApiError of the first fault. */
export function parseTokenizeRequest(body: JsonObject, bounds: { maxMessageCount: number }): QuickRequest {
  checkMessageCount(body, bounds);
  const parsed = TokenizeBody.safeParse(body, { reportInput: true });
  if (!parsed.success) throw refusal(parsed.error);
  const request = parsed.data;
  if (request.messages) checkToolMessages(request.messages);
  return {
    ...quickFields(request),
    prompt: promptOf(request),
    task: {
      kind: 'tokenize',
      addSpecialTokens: request.add_special_tokens ?? true,
      addGenerationPrompt: request.add_generation_prompt ?? true,
      tellTexts: request.return_token_strs ?? false,
    },
  };
}

/** Throws the ApiError of the first fault. */
export function parseDetokenizeRequest(body: JsonObject): QuickRequest {
  const parsed = DetokenizeBody.safeParse(body, { reportInput: true });
  if (!parsed.success) throw refusal(parsed.error);
  const request = parsed.data;
  return { ...quickFields(request), prompt: { kind: 'tokens', tokenIds: request.tokens }, task: { kind: 'detokenize' } };
}

/** Of a job that computes nothing. */
export function quickFields({ model, service_tier }: Pick<z.output<typeof DetokenizeBody>, 'model' | 'service_tier'>) {
  return {
    model: model ?? 'default',
    sampling: { temperature: 0 },
    stopping: { maxTokens: 0 },
    choiceCount: 1,
    serviceClass: serviceClassOf(service_tier),
  };
}

function promptOf({ prompt, messages, tools, chat_template_kwargs: templateValues }: z.output<typeof TokenizeBody>): Prompt {
  if (!messages) return { kind: 'text', text: prompt ?? '' };
  return { kind: 'chat', messages, ...given('tools', promptTools(toolList(tools ?? []))), ...given('templateValues', templateValues) };
}

/** UTF-8 bytes of all strings in a value. */
export function byteCount(value: unknown): number {
  if (typeof value === 'string') return new TextEncoder().encode(value).byteLength;
  if (typeof value !== 'object' || value === null) return 0;
  return Object.values(value).reduce((sum: number, inner: unknown) => sum + byteCount(inner), 0);
}
