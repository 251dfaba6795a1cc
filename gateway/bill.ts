/** Bill: what one job has used so far, told from its events, each taken once; and what of it is to be paid for. */
import type { TokenEvent } from '../shared/token-event.ts';
import type { Used } from './tenant/account.ts';

export class Bill {
  #promptTokens = 0;
  #cachedTokens = 0;
  #completionTokens = 0;
  #end: 'finished' | 'failed' | undefined;

  take(event: TokenEvent): void {
    switch (event.type) {
      case 'accepted':
        this.#promptTokens = event.promptTokens;
        return;
      case 'delta':
        this.#completionTokens += event.tokenIds.length;
        return;
      case 'finish':
        this.#promptTokens = event.usage.promptTokens;
        this.#cachedTokens = event.usage.cachedTokens;
        this.#completionTokens = event.usage.completionTokens;
        this.#end = 'finished';
        return;
      case 'error':
        this.#end = 'failed';
    }
  }

  /** It ended in an error of ours or of a batcher. */
  fail(): void {
    this.#end ??= 'failed';
  }

  get used(): Used {
    return { promptTokens: this.#promptTokens, cachedTokens: this.#cachedTokens, completionTokens: this.#completionTokens };
  }

  /** Nothing for an error before the first token. Whoever leaves early pays for what was done until then. */
  get due(): Used | undefined {
    return this.#end === 'failed' && this.#completionTokens === 0 ? undefined : this.used;
  }
}
