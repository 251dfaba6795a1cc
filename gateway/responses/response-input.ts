/** ResponseInput: what a response was asked, kept beside its answer, as the items that OpenAI lists; its instructions are no part of it. */
import type { ChatMessage, Job } from '../../shared/job.ts';
import { given } from '../generation-fields.ts';
import type { ReplyRecord } from '../reply-record.ts';
import { bareId, type FunctionCallOut, messageId, type OutputItem, type OutputTextOut, textOut } from './response-output.ts';

export interface InputMessageOut {
  id: string;
  type: 'message';
  status: 'completed';
  role: 'user' | 'system' | 'assistant';
  content: ({ type: 'input_text'; text: string } | OutputTextOut)[];
}

export interface CallOutputOut {
  id: string;
  type: 'function_call_output';
  status: 'completed';
  call_id: string;
  output: string;
}

export type InputItemOut = InputMessageOut | (FunctionCallOut & { status: 'completed' }) | CallOutputOut;

/** Undefined where nothing is to be asked for again. */
export function keptInput({ reply }: Pick<ReplyRecord, 'reply'>, { prompt }: Pick<Job, 'prompt'>): string | undefined {
  if (reply.kind !== 'response' || !reply.isStored || prompt.kind !== 'chat') return undefined;
  return JSON.stringify(reply.echo.instructions === null ? prompt.messages : prompt.messages.slice(1));
}

/** In the order in which they were given. */
export function inputItems(responseId: string, kept: string): InputItemOut[] {
  const messages = JSON.parse(kept) as ChatMessage[];
  return messages.flatMap((message, index) => itemsOf(message, { responseId, index }));
}

/** What a response was asked and what it answered: what one after it goes on from. */
export function keptConversation(kept: string, answer: readonly OutputItem[]): ChatMessage[] {
  const text = answer.map(item => (item.type === 'message' ? item.text : '')).join('');
  const toolCalls = answer.flatMap(item =>
    item.type === 'function_call'
      ? [{ id: item.callId, type: 'function' as const, function: { name: item.name, arguments: item.text } }]
      : [],
  );
  const reasoning = answer.find(item => item.type === 'reasoning')?.text;
  const said: ChatMessage = {
    role: 'assistant',
    content: text === '' && toolCalls.length > 0 ? null : text,
    ...given('reasoning', reasoning),
  };
  return [...(JSON.parse(kept) as ChatMessage[]), { ...said, ...(toolCalls.length > 0 && { toolCalls }) }];
}

function itemsOf(
  { role, content, toolCalls = [], toolCallId = '' }: ChatMessage,
  place: { responseId: string; index: number },
): InputItemOut[] {
  const { responseId, index } = place;
  const own = `${bareId(responseId)}_${index}`;
  const text = content ?? '';
  if (role === 'tool') return [{ id: `fco_${own}`, type: 'function_call_output', status: 'completed', call_id: toolCallId, output: text }];
  const message: InputMessageOut = {
    id: `${messageId(responseId)}_${index}`,
    type: 'message',
    status: 'completed',
    role,
    content: [role === 'assistant' ? textOut(text) : { type: 'input_text', text }],
  };
  const calls = toolCalls.map(({ id, function: called }, at) => ({
    ...{ id: `fc_${own}_${at}`, type: 'function_call' as const, status: 'completed' as const },
    ...{ call_id: id, name: called.name, arguments: called.arguments },
  }));
  return [...(text === '' && calls.length > 0 ? [] : [message]), ...calls];
}
