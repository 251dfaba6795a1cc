/**
 * ChatStream: a chat completion as server-sent events; before its first words each choice says once whose they are. A call's first chunk has its id
 * and its name, the others pieces of its arguments.
 */
import type { CallDelta, DeltaEvent, FinishReason } from '../shared/token-event.ts';
import { callId } from './call-id.ts';
import { type ChoiceWriter, ChunkStream } from './chunk-stream.ts';
import { finishReasonOut, logprobsOut, type ReplyHead } from './openai-response.ts';

export interface ChatStreamOptions {
  head: ReplyHead;
  choiceCount: number;
  includeUsage: boolean;
  hasRunningUsage?: boolean;
  /** One function had to be called by its name. */
  hasNamedCall?: boolean | undefined;
}

const ROLE = '"role":"assistant","content":"","refusal":null';
/** Together with a call. */
const CALLER_ROLE = '"role":"assistant","content":null,"refusal":null';

export function chatStream({ head, hasNamedCall = false, ...options }: ChatStreamOptions): ChunkStream {
  const { id, created, model } = head;
  return new ChunkStream({
    ...options,
    head: { id, object: 'chat.completion.chunk', created, model },
    choices: new ChatChoices(id, hasNamedCall),
  });
}

class ChatChoices implements ChoiceWriter {
  readonly #replyId: string;
  readonly #hasNamedCall: boolean;
  readonly #introduced = new Set<number>();

  constructor(replyId: string, hasNamedCall: boolean) {
    this.#replyId = replyId;
    this.#hasNamedCall = hasNamedCall;
  }

  /** Chats are not echoed. */
  echo(): string[] {
    return [];
  }

  delta({ choice, text, reasoning = '', calls = [], logprobs }: DeltaEvent): string[] {
    const told = logprobs !== undefined && logprobs.length > 0 ? JSON.stringify(logprobsOut(logprobs)) : undefined;
    const chunks: string[] = [];
    if (reasoning !== '') {
      chunks.push(
        ...this.#role(choice),
        choiceOut(choice, { delta: `{"reasoning_content":${JSON.stringify(reasoning)}}`, logprobs: told }),
      );
    }
    if (text !== '' || (told !== undefined && chunks.length + calls.length === 0)) {
      const logprobs = chunks.length === 0 ? told : undefined;
      chunks.push(...this.#role(choice), choiceOut(choice, { delta: `{"content":${JSON.stringify(text)}}`, logprobs }));
    }
    for (const delta of calls.flatMap(call => this.#call(choice, call))) {
      chunks.push(choiceOut(choice, { delta, logprobs: chunks.length === 0 ? told : undefined }));
    }
    return chunks;
  }

  end(index: number, reason: FinishReason): string[] {
    return [...this.#role(index), choiceOut(index, { delta: '{}', reason: `"${finishReasonOut(reason, this.#hasNamedCall)}"` })];
  }

  #role(index: number): string[] {
    return this.#isIntroduced(index) ? [] : [choiceOut(index, { delta: `{${ROLE}}` })];
  }

  /** Deltas. */
  #call(choice: number, { index, name, arguments: piece }: CallDelta): string[] {
    const deltas: string[] = [];
    if (name !== undefined) {
      const id = callId('call_', this.#replyId, { choice, call: index });
      const calls = `"tool_calls":[${JSON.stringify({ index, id, type: 'function', function: { name, arguments: '' } })}]`;
      deltas.push(this.#isIntroduced(choice) ? `{${calls}}` : `{${CALLER_ROLE},${calls}}`);
    }
    if (piece !== '') deltas.push(`{"tool_calls":[{"index":${index},"function":{"arguments":${JSON.stringify(piece)}}}]}`);
    return deltas;
  }

  /** Whether it was before. */
  #isIntroduced(index: number): boolean {
    if (this.#introduced.has(index)) return true;
    this.#introduced.add(index);
    return false;
  }
}

/** All of it JSON already. */
function choiceOut(index: number, { delta, logprobs, reason }: { delta: string; logprobs?: string | undefined; reason?: string }): string {
  return `{"index":${index},"delta":${delta},"logprobs":${logprobs ?? 'null'},"finish_reason":${reason ?? 'null'}}`;
}
