/**
 * BatchOutput: what a batch has to tell: a file of the lines that were answered, and one of those that were refused or never begun; each is there
 * when it has a line, and seen when the batch is over.
 */
import type { BatchLine, BatchRecord } from './batch-store.ts';
import type { FileStore } from './file-store.ts';

export interface BatchOutputOptions {
  files: FileStore;
  clock(): number;
}

/** Of a reply, in OpenAI's words: those of the call that it answers. */
export interface LineUsage {
  prompt_tokens?: number;
  completion_tokens?: number;
  prompt_tokens_details?: { cached_tokens?: number };
  input_tokens?: number;
  output_tokens?: number;
  input_tokens_details?: { cached_tokens?: number };
}

export interface LineAnswer {
  status: number;
  requestId: string;
  /** JSON. */
  body: string;
  usage: LineUsage;
}

const REASONS = {
  batch_cancelled: 'This request could not be executed because the batch was cancelled.',
  batch_expired: 'This request could not be executed before the completion window expired.',
} as const;

export class BatchOutput {
  readonly #files: FileStore;
  readonly #clock: () => number;

  constructor({ files, clock }: BatchOutputOptions) {
    this.#files = files;
    this.#clock = clock;
  }

  /** Counts it, too. The record is changed and not yet put. */
  answer(batch: BatchRecord, line: BatchLine, { status, requestId, body, usage }: LineAnswer): void {
    const isGood = status < 400;
    // As it came: it is JSON of our own making, in one line but for the white space that kept its connection open.
    const response = `{"status_code":${status},"request_id":${JSON.stringify(requestId)},"body":${body.trim()}}`;
    this.#write(batch, isGood ? 'output' : 'error', line, `"response":${response},"error":null`);
    if (!isGood) {
      batch.failed++;
      return;
    }
    batch.completed++;
    batch.promptTokens += usage.prompt_tokens ?? usage.input_tokens ?? 0;
    batch.completionTokens += usage.completion_tokens ?? usage.output_tokens ?? 0;
    batch.cachedTokens += (usage.prompt_tokens_details ?? usage.input_tokens_details)?.cached_tokens ?? 0;
  }

  undone(batch: BatchRecord, line: BatchLine, code: keyof typeof REASONS): void {
    this.#write(batch, 'error', line, `"response":null,"error":${JSON.stringify({ code, message: REASONS[code] })}`);
    batch.failed++;
  }

  /** The files can be read from now on. */
  close(batch: BatchRecord): void {
    const createdAt = this.#clock();
    const expiresAt = createdAt + batch.outputLifetimeMs;
    for (const [id, kind] of [
      [batch.outputFileId, 'output'],
      [batch.errorFileId, 'error'],
    ] as const) {
      if (id !== undefined) this.#files.finish(id, { filename: `${batch.id}_${kind}.jsonl`, createdAt, expiresAt });
    }
  }

  #write(batch: BatchRecord, kind: 'output' | 'error', { customId, number }: BatchLine, rest: string): void {
    const field = kind === 'output' ? 'outputFileId' : 'errorFileId';
    let id = batch[field];
    if (id === undefined) {
      id = `file-${crypto.randomUUID().replaceAll('-', '')}`;
      this.#files.begin(id, 'batch_output');
      batch[field] = id;
    }
    const head = `{"id":"batch_req_${batch.id.slice('batch_'.length)}_${number}","custom_id":${JSON.stringify(customId)},`;
    this.#files.append(id, new TextEncoder().encode(`${head}${rest}}\n`));
  }
}
