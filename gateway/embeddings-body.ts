/**
 * EmbeddingsBody: embeddings as one JSON object in OpenAI's shape. Vectors are written as they come, some at a time, so that the end of
 * a long reply is no work; numbers as short as tells each float32 from all others.
 */
import type { AnswerEvent, EmbeddingsEvent } from '../shared/token-event.ts';
import type { EncodingFormat } from './embedding-request.ts';
import { JsonReply } from './json-reply.ts';

export interface EmbeddingUsageOut {
  prompt_tokens: number;
  total_tokens: number;
}

/** Of a float32. */
const SIGNIFICANT_DIGITS = 9;

export class EmbeddingsBody extends JsonReply {
  readonly #model: string;
  readonly #encodingFormat: EncodingFormat;
  /** By index. */
  readonly #entries: string[] = [];

  constructor({ model, encodingFormat }: { model: string; encodingFormat: EncodingFormat }) {
    super();
    this.#model = model;
    this.#encodingFormat = encodingFormat;
  }

  write(event: AnswerEvent): string {
    if (event.type === 'embeddings') this.#take(event);
    if (event.type !== 'finish') return '';
    const { promptTokens } = event.usage;
    const usage: EmbeddingUsageOut = { prompt_tokens: promptTokens, total_tokens: promptTokens };
    const data = this.#entries.join(',');
    return `{"object":"list","data":[${data}],"model":${JSON.stringify(this.#model)},"usage":${JSON.stringify(usage)}}`;
  }

  #take({ first, vectors }: EmbeddingsEvent): void {
    for (const [offset, base64] of vectors.entries()) {
      const vector = this.#encodingFormat === 'base64' ? JSON.stringify(base64) : numbers(base64);
      this.#entries[first + offset] = `{"object":"embedding","index":${first + offset},"embedding":${vector}}`;
    }
  }
}

function numbers(base64: string): string {
  const bytes = Uint8Array.from(atob(base64), character => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const parts = Array.from({ length: bytes.length / 4 }, (_, index) =>
    Number(view.getFloat32(4 * index, true).toPrecision(SIGNIFICANT_DIGITS)),
  );
  return JSON.stringify(parts);
}
