/** Burst: so many streamed chats at one moment, each to run to the same number of tokens, and what is wrong with those that did not. */
import { type StreamOutcome, streamChat, type Target } from './load-client.ts';

/** `content` is what each says; nothing ends it before `maxTokens`. */
export function burst(target: Target, count: number, ask: { content(index: number): string; maxTokens: number }): Promise<StreamOutcome[]> {
  const bodyOf = (index: number) => ({
    model: 'default',
    messages: [{ role: 'user', content: ask.content(index) }],
    max_tokens: ask.maxTokens,
    ignore_eos: true,
    temperature: 0,
  });
  return Promise.all(Array.from({ length: count }, (_, index) => streamChat(target, { body: bodyOf(index) })));
}

/** With ignore_eos every stream runs to its bound. */
export function faultsOf({ usage, faults, finishReasons, chunkTimes }: StreamOutcome, maxTokens: number): string[] {
  if (faults.length > 0) return faults;
  if (usage?.completionTokens !== maxTokens) return [`${usage?.completionTokens} completion tokens instead of ${maxTokens}`];
  if (finishReasons[0] !== 'length') return [`finish_reason ${finishReasons[0]} instead of length`];
  return chunkTimes.length === 0 ? ['no text'] : [];
}
