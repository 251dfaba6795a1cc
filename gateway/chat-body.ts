/** ChatBody: a chat completion as one JSON object, written at the end. */
import { type AnswerEvent, type CallDelta, type FinishReason, joinedCalls, type TokenLogprob } from '../shared/token-event.ts';
import { callId } from './call-id.ts';
import { JsonReply } from './json-reply.ts';
import { type ChatChoiceOut, chatCompletion, finishReasonOut, logprobsOut, type ReplyHead } from './openai-response.ts';

interface ChoiceState {
  texts: string[];
  reasoning: string[];
  calls: CallDelta[][];
  logprobs: TokenLogprob[] | undefined;
  finishReason: FinishReason | undefined;
}

export class ChatBody extends JsonReply {
  readonly #head: ReplyHead;
  readonly #choices: ChoiceState[];
  readonly #hasNamedCall: boolean;

  constructor(options: { head: ReplyHead; choiceCount: number; wantsLogprobs: boolean; hasNamedCall?: boolean | undefined }) {
    super();
    this.#head = options.head;
    this.#hasNamedCall = options.hasNamedCall ?? false;
    this.#choices = Array.from({ length: options.choiceCount }, () => ({
      texts: [],
      reasoning: [],
      calls: [],
      logprobs: options.wantsLogprobs ? [] : undefined,
      finishReason: undefined,
    }));
  }

  write(event: AnswerEvent): string {
    if (event.type === 'finish') return JSON.stringify(chatCompletion(this.#head, this.#choices.map(this.#choiceOut, this), event));
    if (event.type !== 'delta') return '';
    const choice = this.#choices[event.choice];
    if (choice === undefined) return '';
    choice.texts.push(event.text);
    if (event.reasoning !== undefined) choice.reasoning.push(event.reasoning);
    if (event.calls !== undefined) choice.calls.push(event.calls);
    if (event.logprobs !== undefined) choice.logprobs?.push(...event.logprobs);
    choice.finishReason ??= event.finishReason;
    return '';
  }

  #choiceOut(choice: ChoiceState, index: number): ChatChoiceOut {
    const text = choice.texts.join('');
    const reasoning = choice.reasoning.length === 0 ? {} : { reasoning_content: choice.reasoning.join('') };
    const calls = joinedCalls(...choice.calls).map((call, at) => ({
      id: callId('call_', this.#head.id, { choice: index, call: at }),
      type: 'function' as const,
      function: { name: call.name ?? '', arguments: call.arguments },
    }));
    return {
      index,
      message:
        calls.length === 0
          ? { role: 'assistant', ...reasoning, content: text, refusal: null }
          : { role: 'assistant', ...reasoning, content: text === '' ? null : text, refusal: null, tool_calls: calls },
      logprobs: choice.logprobs === undefined ? null : logprobsOut(choice.logprobs),
      finish_reason: finishReasonOut(choice.finishReason ?? 'stop', this.#hasNamedCall),
    };
  }
}
