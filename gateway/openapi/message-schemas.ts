/** MessageSchemas: Anthropic's message, its events and its errors as the description tells them; the compiler holds them to what is written. */
import { z } from 'zod';
import { ERROR_CODES } from '../../shared/errors.ts';
import type { TextBlockOut, ThinkingBlockOut, ToolUseBlockOut } from '../messages/message-blocks.ts';
import type { TokenCountOut } from '../messages/message-body.ts';
import { MESSAGE_ERROR_TYPES, type MessageErrorBody } from '../messages/message-error.ts';
import type { MessageOut } from '../messages/message-object.ts';

const Count = z.int().min(0);

const TextBlock = z.object({ type: z.literal('text'), text: z.string().min(1), citations: z.null() }) satisfies z.ZodType<TextBlockOut>;
const ToolUseBlock = z.object({
  type: z.literal('tool_use'),
  id: z.string().regex(/^toolu_/),
  name: z.string(),
  input: z.record(z.string(), z.unknown()).describe('Of a call that `max_tokens` cut, what of it was whole.'),
  caller: z.object({ type: z.literal('direct') }),
}) satisfies z.ZodType<ToolUseBlockOut>;

const ThinkingBlock = z.object({
  type: z.literal('thinking'),
  thinking: z.string(),
  signature: z.string().describe('Empty: nothing is signed here.'),
}) satisfies z.ZodType<ThinkingBlockOut>;

export const Message = z.object({
  id: z.string().regex(/^msg_/),
  type: z.literal('message'),
  role: z.literal('assistant'),
  model: z.string(),
  content: z
    .array(z.discriminatedUnion('type', [ThinkingBlock, TextBlock, ToolUseBlock]))
    .describe('Empty when the answer has no text and calls nothing.'),
  stop_reason: z.enum(['end_turn', 'max_tokens', 'stop_sequence', 'tool_use', 'refusal']).nullable(),
  stop_sequence: z.string().nullable().describe('The one of `stop_sequences` that ended it.'),
  stop_details: z.null(),
  container: z.null(),
  usage: z.object({
    input_tokens: Count.describe('Of the prompt, what was not read from the cache.'),
    cache_creation: z.null(),
    cache_creation_input_tokens: Count.describe('Always 0: nothing is charged for.'),
    cache_read_input_tokens: Count,
    output_tokens: Count,
    server_tool_use: z.null(),
    service_tier: z.enum(['standard', 'priority', 'batch']),
  }),
}) satisfies z.ZodType<MessageOut>;

export const MessageEvent = z.object({
  type: z.enum([
    ...(['message_start', 'content_block_start', 'content_block_delta', 'content_block_stop', 'message_delta', 'message_stop'] as const),
    ...(['ping', 'error'] as const),
  ]),
});

export const TokenCount = z.object({ input_tokens: Count }) satisfies z.ZodType<TokenCountOut>;

export const MessageError = z.object({
  type: z.literal('error'),
  error: z.object({
    type: z.enum(MESSAGE_ERROR_TYPES),
    message: z.string(),
    details: z.object({
      error_code: z.enum(ERROR_CODES),
      param: z.string().nullable().describe('The field that is at fault, as `messages[0].content`.'),
    }),
  }),
  request_id: z.string().nullable(),
}) satisfies z.ZodType<MessageErrorBody>;
