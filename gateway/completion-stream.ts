/**
 * CompletionStream: a plain completion as server-sent events, chunk for chunk as OpenAI sends them; each index gets one finish_reason,
 * and the stream ends with one `[DONE]` or one error. An echoed prompt comes first, as text of each of its choices.
 *
 * `id:` is the sequence number of the event that the frames before it complete: who comes back with it has seen all of that event.
 */
import type { ApiError } from '../shared/errors.ts';
import type { AnswerEvent, DeltaEvent, EchoEvent, FinishEvent, FinishReason } from '../shared/token-event.ts';
import { type CompletionChoiceOut, CompletionLogprobs, type CompletionLogprobsOut, completionHead } from './completion-response.ts';
import { type ReplyHead, timingsOut, usageOut } from './openai-response.ts';
import type { ReplyWriter } from './reply-writer.ts';
import { commentLine, DONE_FRAME, errorFrame, framesWithId } from './sse-frame.ts';

export interface CompletionStreamOptions {
  head: ReplyHead;
  promptCount: number;
  /** Of each prompt. */
  choiceCount: number;
  includeUsage: boolean;
  wantsLogprobs: boolean;
}

interface ChoiceState {
  logprobs: CompletionLogprobs;
  finishReason: FinishReason | undefined;
  /** Its finish_reason has been written. */
  isEnded: boolean;
}

export class CompletionStream implements ReplyWriter {
  readonly contentType = 'text/event-stream; charset=utf-8';
  readonly isStreamed = true;
  readonly #options: CompletionStreamOptions;
  readonly #choices: ChoiceState[];
  #openCount: number;
  /** A chunk up to its choices, and from there on: the same for all chunks, so written once. */
  readonly #before: string;
  readonly #after: string;

  constructor(options: CompletionStreamOptions) {
    this.#options = options;
    this.#before = `data: ${JSON.stringify(completionHead(options.head)).slice(0, -1)},"choices":[`;
    this.#after = options.includeUsage ? '],"usage":null' : ']';
    this.#openCount = options.promptCount * options.choiceCount;
    this.#choices = Array.from({ length: this.#openCount }, () => ({
      logprobs: new CompletionLogprobs(),
      finishReason: undefined,
      isEnded: false,
    }));
  }

  write(event: AnswerEvent): string {
    switch (event.type) {
      case 'echo':
        return framesWithId(event.seq, this.#echo(event));
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

  #echo({ prompt, text, tokens }: EchoEvent): string[] {
    if (prompt >= this.#options.promptCount) return [];
    const { choiceCount } = this.#options;
    return Array.from({ length: choiceCount }, (_, index) => this.#piece(prompt * choiceCount + index, text, tokens));
  }

  #delta(event: DeltaEvent): string[] {
    const choice = this.#choices[event.choice];
    if (choice === undefined || choice.finishReason !== undefined) return [];
    const frames: string[] = [];
    const hasLogprobs = event.logprobs !== undefined && event.logprobs.length > 0;
    if (event.text !== '' || hasLogprobs) frames.push(this.#piece(event.choice, event.text, event.logprobs));
    if (event.finishReason !== undefined) {
      choice.finishReason = event.finishReason;
      this.#openCount--;
      // The last choice's end waits for the job's own, which comes in the same breath: whoever reads a finish_reason can trust it.
      if (this.#openCount > 0) frames.push(this.#end(event.choice));
    }
    return frames;
  }

  #finish(event: FinishEvent): string[] {
    const frames: string[] = [];
    const { includeUsage } = this.#options;
    const timings = `,"timings":${JSON.stringify(timingsOut(event.timings))}`;
    const waiting = [...this.#choices.keys()].filter(index => !this.#choices[index]!.isEnded);
    for (const index of waiting) frames.push(this.#end(index, index === waiting.at(-1) && !includeUsage ? timings : ''));
    if (includeUsage) frames.push(`${this.#before}],"usage":${JSON.stringify(usageOut(event.usage))}${timings}}`);
    return frames;
  }

  #piece(index: number, text: string, entries: Parameters<CompletionLogprobs['take']>[0] | undefined): string {
    let logprobs: CompletionLogprobsOut | null = null;
    if (this.#options.wantsLogprobs && entries !== undefined) logprobs = this.#choices[index]!.logprobs.take(entries);
    return this.#chunk({ index, text, logprobs, finish_reason: null });
  }

  #end(index: number, extra = ''): string {
    const choice = this.#choices[index]!;
    choice.isEnded = true;
    return this.#chunk({ index, text: '', logprobs: null, finish_reason: choice.finishReason ?? 'stop' }, extra);
  }

  #chunk(choice: CompletionChoiceOut, extra = ''): string {
    return `${this.#before}${JSON.stringify(choice)}${this.#after}${extra}}`;
  }
}
