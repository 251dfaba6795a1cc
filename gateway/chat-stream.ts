/** ChatStream: a chat completion as server-sent events; before its first words each choice says once whose they are. */
import type { DeltaEvent, FinishReason } from '../shared/token-event.ts';
import { type ChoiceWriter, ChunkStream } from './chunk-stream.ts';
import { logprobsOut, type ReplyHead } from './openai-response.ts';

export interface ChatStreamOptions {
  head: ReplyHead;
  choiceCount: number;
  includeUsage: boolean;
  hasRunningUsage?: boolean;
}

const ROLE = '{"role":"assistant","content":"","refusal":null}';

export function chatStream({ head, ...options }: ChatStreamOptions): ChunkStream {
  const { id, created, model } = head;
  return new ChunkStream({ ...options, head: { id, object: 'chat.completion.chunk', created, model }, choices: new ChatChoices() });
}

class ChatChoices implements ChoiceWriter {
  readonly #introduced = new Set<number>();

  /** Chats are not echoed. */
  echo(): string[] {
    return [];
  }

  delta({ choice, text, logprobs }: DeltaEvent): string[] {
    const told = logprobs !== undefined && logprobs.length > 0 ? JSON.stringify(logprobsOut(logprobs)) : undefined;
    if (text === '' && told === undefined) return [];
    return [...this.#role(choice), choiceOut(choice, { delta: `{"content":${JSON.stringify(text)}}`, logprobs: told })];
  }

  end(index: number, reason: FinishReason): string[] {
    return [...this.#role(index), choiceOut(index, { delta: '{}', reason: `"${reason}"` })];
  }

  #role(index: number): string[] {
    if (this.#introduced.has(index)) return [];
    this.#introduced.add(index);
    return [choiceOut(index, { delta: ROLE })];
  }
}

/** All of it JSON already. */
function choiceOut(index: number, { delta, logprobs, reason }: { delta: string; logprobs?: string | undefined; reason?: string }): string {
  return `{"index":${index},"delta":${delta},"logprobs":${logprobs ?? 'null'},"finish_reason":${reason ?? 'null'}}`;
}
