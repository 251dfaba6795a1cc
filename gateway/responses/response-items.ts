/** ResponseItems: the items of a response's input (messages, calls of functions and their outputs) as the messages of a Job. */
import { z } from 'zod';
import { ApiError } from '../../shared/errors.ts';
import type { ChatMessage } from '../../shared/job.ts';
import { otherPart, RefusalPart } from '../content-parts.ts';
import { given, Text } from '../generation-fields.ts';

const Part = z
  .object({ type: z.enum(['input_text', 'output_text', 'text']), text: Text })
  .transform(part => part.text)
  .meta({ description: 'Text, of the client or of an earlier answer.' });
const OtherPart = otherPart(['input_image', 'input_file', 'input_audio'], '');

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

type Item =
  | { kind: 'message'; message: ChatMessage }
  | { kind: 'call'; call: Call }
  | { kind: 'output'; callId: string; text: string }
  | { kind: 'reasoning'; text: string }
  | { kind: 'nothing' };
type Call = NonNullable<ChatMessage['toolCalls']>[number];

const CallId = z.string().min(1).max(256);

const MessageItem = z
  .object({ type: z.literal('message').optional(), role: z.enum(['user', 'assistant', 'system', 'developer']), content: Content })
  .transform(({ role, content }): Item => ({ kind: 'message', message: { role: role === 'developer' ? 'system' : role, content } }));

const CallItem = z
  .object({ type: z.literal('function_call'), call_id: CallId, name: z.string().min(1).max(256), arguments: Text })
  .transform(
    ({ call_id, name, arguments: json }): Item => ({
      kind: 'call',
      call: { id: call_id, type: 'function', function: { name, arguments: json } },
    }),
  )
  .meta({ description: 'A call of an earlier answer.' });

const OutputItem = z
  .object({ type: z.literal('function_call_output'), call_id: CallId, output: Content })
  .transform(({ call_id, output }): Item => ({ kind: 'output', callId: call_id, text: output }))
  .meta({ description: 'What came of an earlier call.' });

const ReasoningPart = z.looseObject({ type: z.string(), text: Text.optional() });

/** Of an earlier answer; its summary is nothing that a model has said. */
const ReasoningItem = z
  .looseObject({ type: z.literal('reasoning'), content: z.array(ReasoningPart).nullish() })
  .transform(({ content }): Item => {
    const text = (content ?? []).map(part => (part.type === 'reasoning_text' ? (part.text ?? '') : '')).join('');
    return text === '' ? { kind: 'nothing' } : { kind: 'reasoning', text };
  });

export const InputItem = z.discriminatedUnion('type', [MessageItem, CallItem, OutputItem, ReasoningItem]);

/**
 * `before`: the conversation that the items go on from. A call belongs to the assistant's message right before it. Throws `invalid_value` for an output
 * of a call that nobody made.
 */
export function conversation(before: readonly ChatMessage[], items: readonly Item[]): ChatMessage[] {
  const messages = [...before];
  const callIds = new Set(before.flatMap(({ toolCalls = [] }) => toolCalls.map(call => call.id)));
  // What an earlier response said is over.
  let isOpen = false;
  // Of what the assistant says next.
  let reasoning: string | undefined;
  for (const [index, item] of items.entries()) {
    switch (item.kind) {
      case 'message':
        messages.push(item.message.role === 'assistant' ? { ...item.message, ...given('reasoning', reasoning) } : item.message);
        reasoning = undefined;
        break;
      case 'call': {
        callIds.add(item.call.id);
        const last = isOpen ? messages.at(-1) : undefined;
        if (last?.role === 'assistant') messages[messages.length - 1] = { ...last, toolCalls: [...(last.toolCalls ?? []), item.call] };
        else messages.push({ role: 'assistant', content: null, toolCalls: [item.call], ...given('reasoning', reasoning) });
        reasoning = undefined;
        break;
      }
      case 'output':
        if (!callIds.has(item.callId)) {
          const param = `input[${index}].call_id`;
          throw new ApiError('invalid_value', `Invalid value for '${param}': no earlier item is a function call of this id.`, { param });
        }
        messages.push({ role: 'tool', content: item.text, toolCallId: item.callId });
        break;
      case 'reasoning':
        reasoning = reasoning === undefined ? item.text : `${reasoning}\n${item.text}`;
        // What follows it is no part of what was said before.
        isOpen = false;
        continue;
      case 'nothing':
        continue;
    }
    isOpen = true;
  }
  if (messages.length === 0) throw new ApiError('invalid_value', "Invalid value for 'input': it says nothing.", { param: 'input' });
  return messages;
}
