/** QuickAnswer: what is known of a prompt from the vocabulary alone: its tokens, or the text of tokens. */
import { ApiError } from '../../shared/errors.ts';
import type { Job } from '../../shared/job.ts';
import type { BulkyEvent } from '../../shared/token-event.ts';

export type QuickQuestion = Pick<Job, 'prompt' | 'task'>;

type Unnumbered<E> = E extends BulkyEvent ? Omit<E, 'id' | 'attempt' | 'seq'> : never;
export type QuickAnswer = Unnumbered<BulkyEvent>;

/** A model's way from what a client sent to tokens and back. */
export interface QuickVocabulary {
  size: number;
  /** Longest prompt plus answer. */
  contextTokens: number;
  encodeText(text: string, options: { addSpecialTokens: boolean }): readonly number[];
  /** Throws ApiError for what the model's template refuses, or when it has none. */
  encodeChat(prompt: Extract<QuickQuestion['prompt'], { kind: 'chat' }>, options: { addGenerationPrompt: boolean }): readonly number[];
  /** Control tokens spelled. */
  decode(tokenIds: readonly number[]): string;
  /** One token as it is written by itself. */
  tokenText(tokenId: number): string;
}

/** Throws ApiError that names the field. */
export function quickAnswer({ prompt, task }: QuickQuestion, vocabulary: QuickVocabulary): QuickAnswer {
  if (task?.kind === 'tokenize' && prompt.kind !== 'tokens') {
    const tokenIds = prompt.kind === 'text' ? vocabulary.encodeText(prompt.text, task) : vocabulary.encodeChat(prompt, task);
    const texts = task.tellTexts ? tokenIds.map(id => vocabulary.tokenText(id)) : undefined;
    return { type: 'tokens', tokenIds: [...tokenIds], contextTokens: vocabulary.contextTokens, ...(texts !== undefined && { texts }) };
  }
  if (task?.kind === 'detokenize' && prompt.kind === 'tokens') {
    const outside = prompt.tokenIds.find(id => id >= vocabulary.size);
    if (outside === undefined) return { type: 'text', text: vocabulary.decode(prompt.tokenIds) };
    throw new ApiError('invalid_value', `There is no token ${outside}; this model's ids end at ${vocabulary.size - 1}.`, {
      param: 'tokens',
    });
  }
  throw new ApiError('generation_failed', 'This batcher does not know this kind of request.');
}
