/**
 * ChatStream: a chat completion as server-sent events, chunk for chunk as OpenAI sends them; each index gets one role and one
 * finish_reason, and the stream ends with one `[DONE]` or one error.
 *
 * `id:` is the sequence number of the event that the frames before it complete: who comes back with it has seen all of that event.
 */
import type { ApiError } from '../shared/errors.ts';
import type { AnswerEvent, DeltaEvent, FinishEvent, FinishReason, Usage } from '../shared/token-event.ts';
import { logprobsOut, type ReplyHead, runningUsageOut, timingsOut, usageOut } from './openai-response.ts';
import type { ReplyWriter } from './reply-writer.ts';
import { commentLine, DONE_FRAME, errorFrame, framesWithId } from './sse-frame.ts';

export interface ChatStreamOptions {
  head: ReplyHead;
  choiceCount: number;
  includeUsage: boolean;
  /** Each chunk tells the usage so far, as vLLM's `continuous_usage_stats` do. */
  hasRunningUsage?: boolean;
}

interface ChoiceState {
  hasRole: boolean;
  finishReason: FinishReason | undefined;
  /** Its finish_reason has been written. */
  isEnded: boolean;
}

export class ChatStream implements ReplyWriter {
  readonly contentType = 'text/event-stream; charset=utf-8';
  readonly isStreamed = true;
  readonly #includeUsage: boolean;
  readonly #choices: ChoiceState[];
  #openCount: number;
  /** A chunk up to its choices, and from there on: the same for all chunks, unless they tell the usage so far, so written once. */
  readonly #before: string;
  readonly #after: string;
  readonly #running: Usage | undefined;

  constructor(options: ChatStreamOptions) {
    const { id, created, model } = options.head;
    const head = JSON.stringify({ id, object: 'chat.completion.chunk', created, model });
    this.#before = `data: ${head.slice(0, -1)},"choices":[`;
    this.#after = options.includeUsage ? '],"usage":null' : ']';
    this.#includeUsage = options.includeUsage;
    this.#running = options.hasRunningUsage ? { promptTokens: 0, completionTokens: 0, cachedTokens: 0 } : undefined;
    this.#choices = Array.from({ length: options.choiceCount }, () => ({ hasRole: false, finishReason: undefined, isEnded: false }));
    this.#openCount = options.choiceCount;
  }

  write(event: AnswerEvent): string {
    switch (event.type) {
      case 'accepted':
        if (this.#running !== undefined) this.#running.promptTokens = event.promptTokens;
        return '';
      case 'delta':
        return framesWithId(event.seq, this.#delta(event));
      case 'finish':
        return framesWithId(event.seq, this.#finish(event)) + DONE_FRAME;
      default:
        return '';
    }
  }

  heartbeat(note: string): string {
    return commentLine(note);
  }

  failure(error: ApiError, seq: number | undefined): string {
    return errorFrame(error, seq);
  }

  #delta(event: DeltaEvent): string[] {
    const choice = this.#choices[event.choice];
    if (choice === undefined || choice.finishReason !== undefined) return [];
    if (this.#running !== undefined) this.#running.completionTokens += event.tokenIds.length;
    const frames: string[] = [];
    const logprobs = event.logprobs !== undefined && event.logprobs.length > 0 ? JSON.stringify(logprobsOut(event.logprobs)) : undefined;
    if (event.text !== '' || logprobs !== undefined) {
      this.#pushRole(frames, event.choice);
      frames.push(this.#chunk(event.choice, `{"content":${JSON.stringify(event.text)}}`, logprobs));
    }
    if (event.finishReason !== undefined) {
      choice.finishReason = event.finishReason;
      this.#openCount--;
      // The last choice's end waits for the job's own, which comes in the same breath: whoever reads a finish_reason can trust it.
      if (this.#openCount > 0) this.#pushEnd(frames, event.choice);
    }
    return frames;
  }

  #finish(event: FinishEvent): string[] {
    const frames: string[] = [];
    const timings = `,"timings":${JSON.stringify(timingsOut(event.timings))}`;
    const waiting = [...this.#choices.keys()].filter(index => !this.#choices[index]!.isEnded);
    for (const index of waiting) this.#pushEnd(frames, index, index === waiting.at(-1) && !this.#includeUsage ? timings : '');
    if (this.#includeUsage) {
      frames.push(`${this.#before}],"usage":${JSON.stringify(usageOut(event.usage))}${timings}}`);
    }
    return frames;
  }

  #pushEnd(frames: string[], index: number, extra = ''): void {
    const choice = this.#choices[index]!;
    choice.isEnded = true;
    this.#pushRole(frames, index);
    frames.push(this.#chunk(index, '{}', 'null', `"${choice.finishReason ?? 'stop'}"`, extra));
  }

  #pushRole(frames: string[], index: number): void {
    const choice = this.#choices[index]!;
    if (choice.hasRole) return;
    choice.hasRole = true;
    frames.push(this.#chunk(index, '{"role":"assistant","content":"","refusal":null}'));
  }

  #chunk(index: number, delta: string, logprobs = 'null', finishReason = 'null', extra = ''): string {
    return `${this.#before}{"index":${index},"delta":${delta},"logprobs":${logprobs},"finish_reason":${finishReason}}${this.#tail()}${extra}}`;
  }

  #tail(): string {
    return this.#running === undefined ? this.#after : `],"usage":${JSON.stringify(runningUsageOut(this.#running))}`;
  }
}
