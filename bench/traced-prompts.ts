/**
 * TracedPrompts: chat prompts for the requests of a trace, as long as it says, counted by the model's own tokenizer and template. Requests whose
 * first blocks have the same ids begin with the same text, and so with the same tokens; all others differ from their first word on.
 */
import { type ChatTemplate, loadChat } from '../batcher/model/chat-template.ts';
import type { TracedRequest } from '../planner/trace.ts';
import type { BenchModel } from './model.ts';
import { passage, readText } from './passages.ts';
import { PromptMaker } from './prompt-maker.ts';

export interface TracedPrompt {
  content: string;
  /** Of the whole prompt, template included. */
  tokenIds: readonly number[];
}

export class TracedPrompts {
  readonly #text: string;
  readonly #template: Pick<ChatTemplate, 'renderChat'>;
  readonly #maker: PromptMaker;
  /** Tokens of the template around a message, as good as. */
  readonly #aroundTokens: number;
  readonly #blocks = new Map<string, string>();

  constructor(text: string, template: Pick<ChatTemplate, 'renderChat'>) {
    this.#text = text;
    this.#template = template;
    this.#maker = new PromptMaker(text, content => this.#tokensOf(content).length);
    this.#aroundTokens = this.#tokensOf('.').length - 1;
  }

  static async open(model: BenchModel): Promise<TracedPrompts> {
    return new TracedPrompts(await readText(), (await loadChat(model)).template);
  }

  /** Tokens that a prompt has at the least. */
  get leastTokens(): number {
    return this.#tokensOf(passage(this.#text, 0, 1)).length + 4;
  }

  /** `index` tells requests without block ids apart. */
  prompt(index: number, { promptTokens, blockIds }: TracedRequest, blockTokens: number | undefined): TracedPrompt {
    const content =
      blockIds === undefined || blockTokens === undefined
        ? this.#maker.content(index, promptTokens)
        : this.#ofBlocks(blockIds, { blockTokens, wantedTokens: promptTokens - this.#aroundTokens });
    return { content, tokenIds: this.#tokensOf(content) };
  }

  /** The template takes its part of the last block, so that the prompt is as long as wanted. */
  #ofBlocks(blockIds: readonly number[], { blockTokens, wantedTokens }: { blockTokens: number; wantedTokens: number }): string {
    const pieces: string[] = [];
    for (let left = Math.max(1, wantedTokens), place = 0; left > 0 && place < blockIds.length; place++) {
      pieces.push(this.#block(blockIds[place]!, Math.min(left, blockTokens)));
      left -= blockTokens;
    }
    return pieces.join('\n');
  }

  #block(id: number, tokenCount: number): string {
    const key = `${id}/${tokenCount}`;
    const known = this.#blocks.get(key);
    if (known !== undefined) return known;
    // A prompt of its own would have the template around it, a block has a line's end behind it.
    const piece = this.#maker.content(id, tokenCount + this.#aroundTokens - 1);
    this.#blocks.set(key, piece);
    return piece;
  }

  #tokensOf(content: string): readonly number[] {
    return this.#template.renderChat([{ role: 'user', content }]);
  }
}
