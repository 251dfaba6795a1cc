/**
 * ChunkStream: a generation as server-sent events, chunk for chunk as OpenAI sends them: each index gets one finish_reason, and the stream ends
 * with one `[DONE]` or one error. What a choice looks like is for its writer to say.
 *
 * `id:` is the sequence number of the event that the frames before it complete: who comes back with it has seen all of that event.
 */
import type { ApiError } from '../shared/errors.ts';
import type { AnswerEvent, DeltaEvent, EchoEvent, FinishEvent, FinishReason, Usage } from '../shared/token-event.ts';
import { runningUsageOut, timingsOut, usageOut } from './openai-response.ts';
import type { ReplyWriter } from './reply-writer.ts';
import { commentLine, DONE_FRAME, errorFrame, framesWithId } from './sse-frame.ts';

/** Writes choices as JSON objects, each of which becomes a chunk of its own. */
export interface ChoiceWriter {
  echo(event: EchoEvent): string[];
  /** What the event adds to its choice, its end aside; often nothing. */
  delta(event: DeltaEvent): string[];
  end(index: number, reason: FinishReason): string[];
}

export interface ChunkStreamOptions {
  /** What is the same in every chunk. */
  head: object;
  choices: ChoiceWriter;
  /** Of all prompts together. */
  choiceCount: number;
  includeUsage: boolean;
  /** Each chunk tells the usage so far, as vLLM's `continuous_usage_stats` do. */
  hasRunningUsage?: boolean;
}

interface ChoiceState {
  finishReason: FinishReason | undefined;
  /** Its finish_reason has been written. */
  isEnded: boolean;
}

export class ChunkStream implements ReplyWriter {
  readonly contentType = 'text/event-stream; charset=utf-8';
  readonly isStreamed = true;
  readonly #writer: ChoiceWriter;
  readonly #includeUsage: boolean;
  readonly #choices: ChoiceState[];
  #openCount: number;
  /** A chunk up to its choice, and from there on: the same for all chunks, unless they tell the usage so far, so written once. */
  readonly #before: string;
  readonly #after: string;
  readonly #running: Usage | undefined;

  constructor(options: ChunkStreamOptions) {
    this.#writer = options.choices;
    this.#includeUsage = options.includeUsage;
    this.#before = `data: ${JSON.stringify(options.head).slice(0, -1)},"choices":[`;
    this.#after = options.includeUsage ? '],"usage":null' : ']';
    this.#running = options.hasRunningUsage ? { promptTokens: 0, completionTokens: 0, cachedTokens: 0 } : undefined;
    this.#openCount = options.choiceCount;
    this.#choices = Array.from({ length: options.choiceCount }, () => ({ finishReason: undefined, isEnded: false }));
  }

  write(event: AnswerEvent): string {
    switch (event.type) {
      case 'accepted':
        if (this.#running !== undefined) this.#running.promptTokens = event.promptTokens;
        return '';
      case 'echo':
        return framesWithId(event.seq, this.#chunks(this.#writer.echo(event)));
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
    const frames = this.#chunks(this.#writer.delta(event));
    if (event.finishReason === undefined) return frames;
    choice.finishReason = event.finishReason;
    this.#openCount--;
    // The last choice's end waits for the job's own, which comes in the same breath: whoever reads a finish_reason can trust it.
    return this.#openCount > 0 ? [...frames, ...this.#end(event.choice)] : frames;
  }

  #finish(event: FinishEvent): string[] {
    const timings = `,"timings":${JSON.stringify(timingsOut(event.timings))}`;
    const waiting = [...this.#choices.keys()].filter(index => !this.#choices[index]!.isEnded);
    const frames = waiting.flatMap(index => this.#end(index, index === waiting.at(-1) && !this.#includeUsage ? timings : ''));
    if (this.#includeUsage) frames.push(`${this.#before}],"usage":${JSON.stringify(usageOut(event.usage))}${timings}}`);
    return frames;
  }

  /** `extra` goes into the last chunk. */
  #end(index: number, extra = ''): string[] {
    const choice = this.#choices[index]!;
    choice.isEnded = true;
    return this.#chunks(this.#writer.end(index, choice.finishReason ?? 'stop'), extra);
  }

  #chunks(choices: readonly string[], extra = ''): string[] {
    const last = choices.length - 1;
    return choices.map((choice, index) => `${this.#before}${choice}${this.#tail()}${index === last ? extra : ''}}`);
  }

  #tail(): string {
    return this.#running === undefined ? this.#after : `],"usage":${JSON.stringify(runningUsageOut(this.#running))}`;
  }
}
