/** ChatBody: a chat completion as one JSON object, written at the end. */
import type { AnswerEvent, FinishReason, TokenLogprob } from '../shared/token-event.ts';
import { JsonReply } from './json-reply.ts';
import { type ChatChoiceOut, chatCompletion, logprobsOut, type ReplyHead } from './openai-response.ts';

interface ChoiceState {
  texts: string[];
  logprobs: TokenLogprob[] | undefined;
  finishReason: FinishReason | undefined;
}

export class ChatBody extends JsonReply {
  readonly #head: ReplyHead;
  readonly #choices: ChoiceState[];

  constructor(options: { head: ReplyHead; choiceCount: number; wantsLogprobs: boolean }) {
    super();
    this.#head = options.head;
    this.#choices = Array.from({ length: options.choiceCount }, () => ({
      texts: [],
      logprobs: options.wantsLogprobs ? [] : undefined,
      finishReason: undefined,
    }));
  }

  write(event: AnswerEvent): string {
    if (event.type === 'finish') return JSON.stringify(chatCompletion(this.#head, this.#choices.map(choiceOut), event));
    if (event.type !== 'delta') return '';
    const choice = this.#choices[event.choice];
    if (choice === undefined) return '';
    choice.texts.push(event.text);
    if (event.logprobs !== undefined) choice.logprobs?.push(...event.logprobs);
    choice.finishReason ??= event.finishReason;
    return '';
  }
}

function choiceOut(choice: ChoiceState, index: number): ChatChoiceOut {
  return {
    index,
    message: { role: 'assistant', content: choice.texts.join(''), refusal: null },
    logprobs: choice.logprobs === undefined ? null : logprobsOut(choice.logprobs),
    finish_reason: choice.finishReason ?? 'stop',
  };
}
