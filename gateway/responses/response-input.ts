/** ResponseInput: what a response was asked, kept beside its answer, as the items that OpenAI lists; its instructions are no part of it. */
import type { ChatMessage, Job } from '../../shared/job.ts';
import type { ReplyRecord } from '../reply-record.ts';
import { messageId, type OutputTextOut, textOut } from './response-object.ts';

export interface InputItemOut {
  id: string;
  type: 'message';
  status: 'completed';
  role: 'user' | 'system' | 'assistant';
  content: ({ type: 'input_text'; text: string } | OutputTextOut)[];
}

/** Undefined where nothing is to be asked for again. */
export function keptInput({ reply }: Pick<ReplyRecord, 'reply'>, { prompt }: Pick<Job, 'prompt'>): string | undefined {
  if (reply.kind !== 'response' || !reply.isStored || prompt.kind !== 'chat') return undefined;
  return JSON.stringify(reply.echo.instructions === null ? prompt.messages : prompt.messages.slice(1));
}

/** In the order in which they were given. */
export function inputItems(responseId: string, kept: string): InputItemOut[] {
  const messages = JSON.parse(kept) as ChatMessage[];
  return messages.map(({ role, content }, index) => ({
    id: `${messageId(responseId)}_${index}`,
    type: 'message',
    status: 'completed',
    role: role === 'tool' ? 'user' : role,
    content: [role === 'assistant' ? textOut(content ?? '') : { type: 'input_text', text: content ?? '' }],
  }));
}
