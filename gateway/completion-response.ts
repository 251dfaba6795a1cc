/**
 * CompletionResponse: the objects of the plain completions contract, made from token events; log-probabilities in the old shape.
 * Keys that may be null are there and null.
 */
import type { EchoedToken, FinishReason, Timings, Usage } from '../shared/token-event.ts';
import { type ReplyHead, timingsOut, usageOut } from './openai-response.ts';

/** One entry a token. A prompt's first token follows nothing: its log-probability and alternatives are null. */
export interface CompletionLogprobsOut {
  tokens: string[];
  token_logprobs: (number | null)[];
  /** The most likely tokens and, where it is not among them, the one that was chosen. */
  top_logprobs: (Record<string, number> | null)[];
  /** Where the token begins in the choice's text, in characters (code points), as Python counts. */
  text_offset: number[];
}

export interface CompletionChoiceOut {
  index: number;
  text: string;
  logprobs: CompletionLogprobsOut | null;
  finish_reason: FinishReason | null;
}

/** CompletionLogprobs: the log-probabilities of one choice, piece by piece; it knows where in the text each piece begins. */
export class CompletionLogprobs {
  /** Characters that the tokens so far have begun. */
  #begun = 0;

  take(entries: readonly EchoedToken[]): CompletionLogprobsOut {
    return {
      tokens: entries.map(({ token }) => token),
      token_logprobs: entries.map(({ logprob }) => logprob),
      top_logprobs: entries.map(topOut),
      text_offset: entries.map(({ bytes }) => this.#offset(bytes)),
    };
  }

  #offset(bytes: readonly number[]): number {
    // A token that goes on with a character begins where that one does.
    const offset = isContinuation(bytes[0]) ? Math.max(0, this.#begun - 1) : this.#begun;
    for (const byte of bytes) if (!isContinuation(byte)) this.#begun += 1;
    return offset;
  }
}

/** Two tokens may have one spelling: the more likely stands. */
function topOut({ token, logprob, top }: EchoedToken): Record<string, number> | null {
  if (logprob === null) return null;
  const out = new Map<string, number>();
  for (const one of top) if (!out.has(one.token)) out.set(one.token, one.logprob);
  if (!out.has(token)) out.set(token, logprob);
  // From entries, since a token may be spelled `__proto__`.
  return Object.fromEntries(out);
}

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}

export function completionHead({ id, created, model }: ReplyHead): object {
  return { id, object: 'text_completion', created, model };
}

export function textCompletion(head: ReplyHead, choices: CompletionChoiceOut[], end: { usage: Usage; timings: Timings }): object {
  return { ...completionHead(head), choices, usage: usageOut(end.usage), timings: timingsOut(end.timings) };
}
