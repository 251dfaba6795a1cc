/** AnswerParts: what one delta adds to its choice, part by part in the order in which it was said: reasoning, text, a call's beginning, a piece of its arguments. */
import type { DeltaEvent } from '../shared/token-event.ts';

export type AnswerPart =
  | { kind: 'reasoning'; text: string }
  | { kind: 'text'; text: string }
  /** `index`: of the call among the choice's. */
  | { kind: 'call'; index: number; name: string }
  /** Of the call that began last. */
  | { kind: 'arguments'; piece: string };

export function* answerParts({
  reasoning = '',
  text,
  calls = [],
}: Pick<DeltaEvent, 'reasoning' | 'text' | 'calls'>): Generator<AnswerPart> {
  if (reasoning !== '') yield { kind: 'reasoning', text: reasoning };
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
