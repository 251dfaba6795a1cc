/** QuickBody: what was made of a prompt, or of tokens, as one JSON object in vLLM's shapes. */
import type { AnswerEvent } from '../shared/token-event.ts';
import { JsonReply } from './json-reply.ts';

export interface TokenizeOut {
  count: number;
  /** Prompt and answer together. */
  max_model_len: number;
  tokens: number[];
  /** Where they were asked for. */
  token_strs: string[] | null;
}

export interface DetokenizeOut {
  prompt: string;
}

export class QuickBody extends JsonReply {
  write(event: AnswerEvent): string {
    switch (event.type) {
      case 'tokens': {
        const { tokenIds, texts, contextTokens } = event;
        const out: TokenizeOut = { count: tokenIds.length, max_model_len: contextTokens, tokens: tokenIds, token_strs: texts ?? null };
        return JSON.stringify(out);
      }
      case 'text':
        return JSON.stringify({ prompt: event.text } satisfies DetokenizeOut);
      default:
        return '';
    }
  }
}
