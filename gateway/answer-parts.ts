/** AnswerParts: what one delta adds to its choice, part by part in the order in which it was said: text, a call's beginning, a piece of its arguments. */
import type { DeltaEvent } from '../shared/token-event.ts';

export type AnswerPart =
  | { kind: 'text'; text: string }
  /** `index`: of the call among the choice's. */
  | { kind: 'call'; index: number; name: string }
  /** Of the call that began last. */
  | { kind: 'arguments'; piece: string };

export function* answerParts({ text, calls = [] }: Pick<DeltaEvent, 'text' | 'calls'>): Generator<AnswerPart> {
  // The rest of a call comes before text, which comes before the next call.
  let isTextTold = text === '';
  for (const { index, name, arguments: piece } of calls) {
    if (name !== undefined) {
      if (!isTextTold) yield { kind: 'text', text };
      isTextTold = true;
      yield { kind: 'call', index, name };
    }
    if (piece !== '') yield { kind: 'arguments', piece };
  }
  if (!isTextTold) yield { kind: 'text', text };
}
