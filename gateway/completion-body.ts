/** CompletionBody: a plain completion as one JSON object, written at the end; of more choices than were asked for it keeps the best. */
import type { AnswerEvent, EchoedToken, FinishReason } from '../shared/token-event.ts';
import { type CompletionChoiceOut, CompletionLogprobs, textCompletion } from './completion-response.ts';
import { JsonReply } from './json-reply.ts';
import type { ReplyHead } from './openai-response.ts';

export interface CompletionBodyOptions {
  head: ReplyHead;
  promptCount: number;
  /** Choices of each prompt that are generated, and that are returned. */
  choiceCount: number;
  keptCount: number;
  wantsLogprobs: boolean;
}

interface ChoiceState {
  texts: string[];
  entries: EchoedToken[];
  /** Of the generated tokens. */
  logprobSum: number;
  tokenCount: number;
  finishReason: FinishReason | undefined;
}

export class CompletionBody extends JsonReply {
  readonly #options: CompletionBodyOptions;
  /** By prompt, then by choice. */
  readonly #choices: ChoiceState[][];

  constructor(options: CompletionBodyOptions) {
    super();
    this.#options = options;
    const empty = (): ChoiceState => ({ texts: [], entries: [], logprobSum: 0, tokenCount: 0, finishReason: undefined });
    this.#choices = Array.from({ length: options.promptCount }, () => Array.from({ length: options.choiceCount }, empty));
  }

  write(event: AnswerEvent): string {
    switch (event.type) {
      case 'echo':
        for (const choice of this.#choices[event.prompt] ?? []) {
          choice.texts.push(event.text);
          choice.entries.push(...(event.tokens ?? []));
        }
        return '';
      case 'delta': {
        const { choiceCount } = this.#options;
        const choice = this.#choices[Math.floor(event.choice / choiceCount)]?.[event.choice % choiceCount];
        if (choice === undefined) return '';
        choice.texts.push(event.text);
        for (const entry of event.logprobs ?? []) {
          choice.entries.push(entry);
          choice.logprobSum += entry.logprob;
          choice.tokenCount += 1;
        }
        choice.finishReason ??= event.finishReason;
        return '';
      }
      case 'finish':
        return JSON.stringify(textCompletion(this.#options.head, this.#choicesOut(), event));
      default:
        return '';
    }
  }

  #choicesOut(): CompletionChoiceOut[] {
    const { choiceCount, keptCount, wantsLogprobs } = this.#options;
    const kept = this.#choices.flatMap(choices => (choiceCount > keptCount ? choices.toSorted(byRank).slice(0, keptCount) : choices));
    return kept.map((choice, index) => ({
      index,
      text: choice.texts.join(''),
      logprobs: wantsLogprobs ? new CompletionLogprobs().take(choice.entries) : null,
      finish_reason: choice.finishReason ?? 'stop',
    }));
  }
}

/** By log-probability per token, the highest first, as OpenAI ranks; one that said nothing comes last. */
function byRank(a: ChoiceState, b: ChoiceState): number {
  if (a.tokenCount === 0 || b.tokenCount === 0) return b.tokenCount - a.tokenCount;
  return b.logprobSum / b.tokenCount - a.logprobSum / a.tokenCount;
}
