/** OpenQuickVocabulary: tokenizer and template of a prepared model, as quick questions need them. */
import { loadChat } from '../model/chat-template.ts';
import { openPrepared } from '../model/prepare.ts';
import type { QuickVocabulary } from './quick-answer.ts';

/** Throws a ModelError when the folder cannot be read. */
export async function openQuickVocabulary(options: { modelDirectory: string; contextTokens: number }): Promise<QuickVocabulary> {
  const { tokenizer, template } = await loadChat(await openPrepared(options.modelDirectory));
  return {
    size: tokenizer.vocabSize,
    contextTokens: options.contextTokens,
    encodeText: (text, { addSpecialTokens }) => tokenizer.encodePrompt(text, { addBos: addSpecialTokens }),
    encodeChat: ({ messages, tools }, { addGenerationPrompt }) =>
      template.renderChat(messages, tools, { addGenerationPrompt, mayExceedContext: true }),
    decode: tokenIds => tokenizer.decode(tokenIds, 'spelled'),
  };
}
