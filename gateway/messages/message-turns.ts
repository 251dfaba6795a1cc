/**
 * MessageTurns: a conversation as Anthropic's clients write it (a system prompt beside it, turns of blocks, results of tools in the user's turn)
 * as the messages of a Job. Turns of one role that follow each other are one, as there.
 */
import { z } from 'zod';
import { ApiError } from '../../shared/errors.ts';
import type { ChatMessage } from '../../shared/job.ts';
import { otherPart } from '../content-parts.ts';
import { Text } from '../generation-fields.ts';

const MAX_BLOCKS = 1_024;
const BETWEEN_TURNS = '\n\n';

type Block =
  | { kind: 'text'; text: string }
  | { kind: 'call'; call: NonNullable<ChatMessage['toolCalls']>[number] }
  | { kind: 'result'; callId: string; text: string }
  | { kind: 'thinking'; text: string }
  | { kind: 'nothing' };

export interface Turn {
  role: 'user' | 'assistant' | 'system';
  blocks: Block[];
}

const FORMS = { error: 'expected a string or an array of content blocks' };
const Id = z.string().min(1).max(256);

const TextBlock = z
  .object({ type: z.literal('text'), text: Text })
  .transform(({ text }): Block => ({ kind: 'text', text }))
  .meta({ description: 'Text; `cache_control` and `citations` have no effect, since every prompt is cached.' });

const NOTHING: Block = { kind: 'nothing' };
const OtherBlock = otherPart(['image', 'document', 'search_result', 'container_upload'], NOTHING, 'sees or reads files');

/** Of an earlier answer; what is redacted nobody here can read. */
const ThinkingBlock = z
  .looseObject({ type: z.enum(['thinking', 'redacted_thinking']), thinking: Text.optional() })
  .transform(({ thinking = '' }): Block => (thinking === '' ? NOTHING : { kind: 'thinking', text: thinking }));

const ToolUseBlock = z
  .object({ type: z.literal('tool_use'), id: Id, name: z.string().min(1).max(256), input: z.record(z.string(), z.unknown()) })
  .transform(
    ({ id, name, input }): Block => ({
      kind: 'call',
      call: { id, type: 'function', function: { name, arguments: JSON.stringify(input).toWellFormed() } },
    }),
  );

const Texts = z
  .array(z.discriminatedUnion('type', [TextBlock, OtherBlock]))
  .max(MAX_BLOCKS)
  .transform(blocks => textOf(blocks));

const ToolResultBlock = z
  .object({
    type: z.literal('tool_result'),
    tool_use_id: Id,
    content: z.union([Text, Texts], { error: 'expected a string or an array of text blocks' }).optional(),
    is_error: z.boolean().nullish(),
  })
  .transform(({ tool_use_id, content = '' }): Block => ({ kind: 'result', callId: tool_use_id, text: content }));

const Plain = Text.transform((text): Block[] => [{ kind: 'text', text }]);
const blocksOf = <T extends z.ZodType<Block>>(block: T) => z.union([Plain, z.array(block).min(1).max(MAX_BLOCKS)], FORMS);

const UserTurn = z.object({
  role: z.literal('user'),
  content: blocksOf(z.discriminatedUnion('type', [TextBlock, ToolResultBlock, OtherBlock])),
});
const AssistantTurn = z.object({
  role: z.literal('assistant'),
  content: blocksOf(z.discriminatedUnion('type', [TextBlock, ToolUseBlock, ThinkingBlock, OtherBlock])),
});
const SystemTurn = z.object({ role: z.literal('system'), content: blocksOf(z.discriminatedUnion('type', [TextBlock, OtherBlock])) });

export const MessageTurn = z
  .discriminatedUnion('role', [UserTurn, AssistantTurn, SystemTurn])
  .transform(({ role, content }): Turn => ({ role, blocks: content }));

/** In front of all turns. */
export const SystemPrompt = z.union([Text, Texts], { error: 'expected a string or an array of text blocks' });

/** Throws `invalid_value` for a result without its call, and for a conversation that the model is not to answer but to go on with. */
export function conversation(system: string | undefined, turns: readonly Turn[]): ChatMessage[] {
  const messages: ChatMessage[] = system === undefined || system === '' ? [] : [{ role: 'system', content: system }];
  const callIds = new Set<string>();
  for (const [index, { role, blocks }] of turns.entries()) {
    const missing = blocks.findIndex(block => block.kind === 'result' && !callIds.has(block.callId));
    if (missing !== -1) {
      throw wrong(`messages[${index}].content[${missing}].tool_use_id`, 'no earlier turn of the assistant has a `tool_use` of this id.');
    }
    if (role === 'assistant') add(messages, assistantMessage(blocks));
    else for (const message of heardMessages(role, blocks)) add(messages, message);
    for (const block of blocks) if (block.kind === 'call') callIds.add(block.call.id);
  }
  if (turns.at(-1)?.role === 'assistant') {
    throw wrong('messages', "the last turn must not be the assistant's: to give the beginning of an answer is not supported.");
  }
  return messages;
}

function assistantMessage(blocks: readonly Block[]): ChatMessage {
  const toolCalls = blocks.flatMap(block => (block.kind === 'call' ? [block.call] : []));
  const text = textOf(blocks);
  const reasoning = blocks.flatMap(block => (block.kind === 'thinking' ? [block.text] : []));
  return {
    role: 'assistant',
    content: text === '' && toolCalls.length > 0 ? null : text,
    ...(reasoning.length > 0 && { reasoning: reasoning.join('\n') }),
    ...(toolCalls.length > 0 && { toolCalls }),
  };
}

/** Results of tools, and the texts before, between and after them, in their order. */
function* heardMessages(role: 'user' | 'system', blocks: readonly Block[]): Generator<ChatMessage> {
  let texts: Block[] = [];
  for (const block of blocks) {
    if (block.kind !== 'result') {
      texts.push(block);
      continue;
    }
    if (texts.length > 0) yield { role, content: textOf(texts) };
    texts = [];
    yield { role: 'tool', content: block.text, toolCallId: block.callId };
  }
  if (texts.length > 0) yield { role, content: textOf(texts) };
}

function add(messages: ChatMessage[], message: ChatMessage): void {
  const last = messages.at(-1);
  const isSame = last?.role === message.role && message.role !== 'tool' && !last.toolCalls && !message.toolCalls;
  if (isSame) messages[messages.length - 1] = joined(last, message);
  else messages.push(message);
}

function joined(first: ChatMessage, second: ChatMessage): ChatMessage {
  return { ...first, content: `${first.content ?? ''}${BETWEEN_TURNS}${second.content ?? ''}` };
}

function textOf(blocks: readonly Block[]): string {
  return blocks.map(block => (block.kind === 'text' ? block.text : '')).join('');
}

function wrong(param: string, what: string): ApiError {
  return new ApiError('invalid_value', `Invalid value for '${param}': ${what}`, { param });
}
