/** QuickBody: what was made of a prompt, or of tokens, as one JSON object in vLLM's shapes. */
import type { ApiError } from '../shared/errors.ts';
import type { AnswerEvent } from '../shared/token-event.ts';
import type { ReplyWriter } from './reply-writer.ts';

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

export class QuickBody implements ReplyWriter {
  readonly contentType = 'application/json';
  readonly isStreamed = false;

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

  /** JSON may begin with any amount of white space. */
  heartbeat(): string {
    return '\n';
  }

  /** A body whose status said 200 cannot turn into an error: it is cut off instead, which no client takes for an answer. */
  failure(_error: ApiError): undefined {
    return undefined;
  }
}
