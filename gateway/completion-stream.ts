/** CompletionStream: a plain completion as server-sent events; an echoed prompt comes first, as text of each of its choices. */
import type { DeltaEvent, EchoEvent, FinishReason } from '../shared/token-event.ts';
import { type ChoiceWriter, ChunkStream } from './chunk-stream.ts';
import { type CompletionChoiceOut, CompletionLogprobs, completionHead } from './completion-response.ts';
import type { ReplyHead } from './openai-response.ts';

export interface CompletionStreamOptions {
  head: ReplyHead;
  promptCount: number;
  /** Of each prompt. */
  choiceCount: number;
  includeUsage: boolean;
  wantsLogprobs: boolean;
}

export function completionStream({ head, includeUsage, ...options }: CompletionStreamOptions): ChunkStream {
  return new ChunkStream({
    head: completionHead(head),
    choices: new CompletionChoices(options),
    choiceCount: options.promptCount * options.choiceCount,
    includeUsage,
  });
}

class CompletionChoices implements ChoiceWriter {
  readonly #options: Pick<CompletionStreamOptions, 'promptCount' | 'choiceCount' | 'wantsLogprobs'>;
  /** By choice. */
  readonly #logprobs: CompletionLogprobs[];

  constructor(options: Pick<CompletionStreamOptions, 'promptCount' | 'choiceCount' | 'wantsLogprobs'>) {
    this.#options = options;
    this.#logprobs = Array.from({ length: options.promptCount * options.choiceCount }, () => new CompletionLogprobs());
  }

  echo({ prompt, text, tokens }: EchoEvent): string[] {
    const { promptCount, choiceCount } = this.#options;
    if (prompt >= promptCount) return [];
    return Array.from({ length: choiceCount }, (_, index) => this.#piece(prompt * choiceCount + index, text, tokens));
  }

  delta({ choice, text, logprobs }: DeltaEvent): string[] {
    return text === '' && (logprobs === undefined || logprobs.length === 0) ? [] : [this.#piece(choice, text, logprobs)];
  }

  end(index: number, reason: FinishReason): string[] {
    return [choiceOut({ index, text: '', logprobs: null, finish_reason: reason })];
  }

  #piece(index: number, text: string, entries: Parameters<CompletionLogprobs['take']>[0] | undefined): string {
    const isTold = this.#options.wantsLogprobs && entries !== undefined;
    return choiceOut({ index, text, logprobs: isTold ? this.#logprobs[index]!.take(entries) : null, finish_reason: null });
  }
}

function choiceOut(choice: CompletionChoiceOut): string {
  return JSON.stringify(choice);
}
