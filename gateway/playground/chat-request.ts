/** ChatRequest: the body of POST /v1/chat/completions that the form and the conversation make; fields left empty are not sent. */
import type { Turn } from './conversation.ts';

export interface ChatRequest {
  model: string;
  messages: { role: 'system' | 'user' | 'assistant'; content: string }[];
  stream: true;
  stream_options: { include_usage: true; continuous_usage_stats: true };
  [parameter: string]: unknown;
}

/** Fields of the form that are numbers, under the names of the API. */
const NUMBERS = ['temperature', 'top_p', 'max_tokens', 'seed', 'presence_penalty', 'frequency_penalty'] as const;

/** `form` has the texts of the form's fields by their names. */
export function chatRequest(form: ReadonlyMap<string, string>, turns: readonly Turn[]): ChatRequest {
  const text = (name: string) => form.get(name)?.trim() ?? '';
  const system = text('system');
  // As it was written: a space may be what is meant.
  const stop = (form.get('stop') ?? '').split('\n').filter(line => line !== '');
  return {
    model: text('model') || 'default',
    messages: [...(system === '' ? [] : [{ role: 'system' as const, content: system }]), ...turns.flatMap(messageOf)],
    ...Object.fromEntries(NUMBERS.filter(name => text(name) !== '').map(name => [name, Number(text(name))])),
    ...(stop.length > 0 && { stop }),
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
  };
}

/** Of several answers the first is the one that the conversation goes on with; one that has no text was none. */
function messageOf(turn: Turn): ChatRequest['messages'] {
  if (turn.role === 'user') return [{ role: 'user', content: turn.text }];
  const content = turn.answers[0]?.text ?? '';
  return content === '' ? [] : [{ role: 'assistant', content }];
}
