/**
 * PromptMaker: chat prompts of a wanted number of tokens out of the fixed text, counted by the model's own tokenizer and template. No two
 * indexes begin alike, so that none finds another's prefix in a cache.
 */
import { loadChat } from '../batcher/model/chat-template.ts';
import type { BenchModel } from './model.ts';
import { passage, readText } from './passages.ts';

export class PromptMaker {
  readonly #text: string;
  readonly #countTokens: (content: string) => number;

  /** `countTokens` gives the tokens of a whole prompt whose one user message has that content. */
  constructor(text: string, countTokens: (content: string) => number) {
    this.#text = text;
    this.#countTokens = countTokens;
  }

  static async open(model: BenchModel): Promise<PromptMaker> {
    const { template } = await loadChat(model);
    return new PromptMaker(await readText(), content => template.renderChat([{ role: 'user', content }]).length);
  }

  /** The longest passage whose prompt has at most `tokenCount` tokens, or the shortest there is. */
  content(index: number, tokenCount: number): string {
    let enough = 0;
    // A word has one token at least.
    let tooMany = tokenCount;
    while (tooMany - enough > 1) {
      const wordCount = (enough + tooMany) >>> 1;
      if (this.#countTokens(passage(this.#text, index, wordCount)) <= tokenCount) enough = wordCount;
      else tooMany = wordCount;
    }
    return passage(this.#text, index, enough);
  }
}
