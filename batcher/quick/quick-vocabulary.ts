/** OpenQuickVocabulary: tokenizer and template of a prepared model, as quick questions need them. */
import { ApiError } from '../../shared/errors.ts';
import { loadChat } from '../model/chat-template.ts';
import { checkPrepared, isEncoder } from '../model/manifest.ts';
import { openPrepared } from '../model/prepare.ts';
import { loadEncoderVocabulary } from '../model/prepare-encoder.ts';
import { WordPiece } from '../model/word-piece.ts';
import type { ToolFormat } from '../tools/tool-format.ts';
import type { QuickVocabulary } from './quick-answer.ts';

/** Throws a ModelError when the folder cannot be read. */
export async function openQuickVocabulary(options: {
  modelDirectory: string;
  contextTokens: number;
  toolFormat?: ToolFormat | undefined;
}): Promise<QuickVocabulary> {
  const { modelDirectory, contextTokens, toolFormat } = options;
  const check = await checkPrepared(modelDirectory);
  return check.state === 'intact' && isEncoder(check.manifest)
    ? await encoderVocabulary(modelDirectory, contextTokens)
    : await textVocabulary(modelDirectory, { contextTokens, toolFormat });
}

async function textVocabulary(
  modelDirectory: string,
  { contextTokens, toolFormat }: { contextTokens: number; toolFormat: ToolFormat | undefined },
): Promise<QuickVocabulary> {
  const { tokenizer, template } = await loadChat(await openPrepared(modelDirectory), { toolFormat });
  return {
    size: tokenizer.vocabSize,
    contextTokens,
    encodeText: (text, { addSpecialTokens }) => tokenizer.encodePrompt(text, { addBos: addSpecialTokens }),
    encodeChat: ({ messages, tools, templateValues: values }, { addGenerationPrompt }) =>
      template.renderChat(messages, tools, { addGenerationPrompt, mayExceedContext: true, values }),
    decode: tokenIds => tokenizer.decode(tokenIds, 'spelled'),
    tokenText: tokenId => tokenizer.tokenText(tokenId),
  };
}

async function encoderVocabulary(modelDirectory: string, contextTokens: number): Promise<QuickVocabulary> {
  const tokenizer = new WordPiece(await loadEncoderVocabulary(modelDirectory));
  return {
    size: tokenizer.size,
    contextTokens,
    encodeText: (text, { addSpecialTokens }) => tokenizer.encode(text, { addSpecialTokens }),
    encodeChat: () => {
      throw new ApiError('invalid_value', 'This model makes embeddings and has no conversations.', { param: 'messages' });
    },
    decode: tokenIds => tokenizer.decode(tokenIds),
    tokenText: tokenId => tokenizer.piece(tokenId),
  };
}
