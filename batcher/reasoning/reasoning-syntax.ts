/**
 * ReasoningSyntax: how models set their reasoning apart from the answer behind it, `<think>…</think>` (Qwen3, DeepSeek R1 and others), and whether a
 * model does, as its chat template tells it.
 */
import type { Prompt } from '../../shared/job.ts';

export const REASONING_FORMATS = ['think', 'none'] as const;
export type ReasoningFormat = (typeof REASONING_FORMATS)[number];

export const REASONING_OPENER = '<think>';
/** Its first character comes once in it, as in the opener. */
export const REASONING_CLOSER = '</think>';

/** Of marks that are control tokens, which have no text, their numbers. */
export interface ReasoningSyntax {
  openerTokenId?: number | undefined;
  closerTokenId?: number | undefined;
}

/** The tokens that spell the mark that ends reasoning; none for a model that does not reason apart. */
export function closerTokenIdsOf(syntax: ReasoningSyntax | undefined, encode: (text: string) => readonly number[]): readonly number[] {
  if (syntax === undefined) return [];
  return syntax.closerTokenId === undefined ? encode(REASONING_CLOSER) : [syntax.closerTokenId];
}

/** Of one answer. */
export interface Reasoning extends ReasoningSyntax {
  /** `begun`: the prompt ends within it. `possible`: the answer may open it with its first words. */
  start: 'begun' | 'possible';
}

/** Undefined for a model that does not reason apart from its answer; `format` goes before what the template tells. */
export function reasoningSyntaxOf(
  format: ReasoningFormat | undefined,
  template: string,
  controlTokenId: (mark: string) => number | undefined,
): ReasoningSyntax | undefined {
  // A template that only takes earlier reasoning away names the closer alone.
  const isTold = template.includes(REASONING_CLOSER);
  if (format === 'none' || (format === undefined && !isTold)) return undefined;
  const openerTokenId = controlTokenId(REASONING_OPENER);
  const closerTokenId = controlTokenId(REASONING_CLOSER);
  return { ...(openerTokenId !== undefined && { openerTokenId }), ...(closerTokenId !== undefined && { closerTokenId }) };
}

/** What ends a prompt is shorter than this. */
const TAIL_TOKENS = 32;

/** Of the answer to a prompt; undefined where it is none, or was told to be without. `spelled`: UTF-8 of a token, control tokens spelled. */
export function reasoningOf(
  { prompt, tokenIds }: { prompt: Pick<Prompt, 'kind'>; tokenIds: readonly number[] },
  syntax: ReasoningSyntax | undefined,
  spelled: (tokenId: number) => Uint8Array,
): Reasoning | undefined {
  if (syntax === undefined || prompt.kind !== 'chat') return undefined;
  const tail = Buffer.concat(tokenIds.slice(-TAIL_TOKENS).map(spelled)).toString().trimEnd();
  // `<think></think>` there is how templates say that there is to be none.
  if (tail.endsWith(REASONING_CLOSER)) return undefined;
  return { ...syntax, start: tail.endsWith(REASONING_OPENER) ? 'begun' : 'possible' };
}
