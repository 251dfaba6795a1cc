/** PromptEncoder: the one place where what a client sent becomes token ids; template markup is told apart from content by the parts it uses. */
import { ApiError } from '../shared/errors.ts';
import type { Prompt } from '../shared/job.ts';
import type { ChatTemplate } from './model/chat-template.ts';
import type { Tokenizer } from './model/tokenizer.ts';

/** Throws ApiError for what the template refuses, for an empty prompt and for ids outside the vocabulary. */
export function encodePrompt(prompt: Prompt, { tokenizer, template }: { tokenizer: Tokenizer; template: ChatTemplate }): readonly number[] {
  switch (prompt.kind) {
    case 'chat':
      return template.renderChat(prompt.messages, prompt.tools, { values: prompt.templateValues });
    case 'text': {
      const ids = tokenizer.encodePrompt(prompt.text);
      if (ids.length === 0) throw new ApiError('invalid_value', 'The prompt is empty.', { param: 'prompt' });
      return ids;
    }
    case 'tokens': {
      if (prompt.tokenIds.length === 0) throw new ApiError('invalid_value', 'The prompt is empty.', { param: 'prompt' });
      const outside = prompt.tokenIds.find(id => id >= tokenizer.vocabSize);
      if (outside !== undefined) {
        throw new ApiError('invalid_value', `The prompt has token id ${outside}; this model's ids end at ${tokenizer.vocabSize - 1}.`, {
          param: 'prompt',
        });
      }
      return prompt.tokenIds;
    }
  }
}
