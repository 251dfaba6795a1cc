/**
 * QuickService: asks the quick thread, which is started by the first question. A thread that ends takes its questions with it as failures,
 * and the next question starts another.
 */
import { Worker } from 'node:worker_threads';
import { ApiError, isErrorCode } from '../../shared/errors.ts';
import type { QuickAnswer, QuickQuestion } from './quick-answer.ts';
import type { QuickThreadData, QuickThreadQuestion, QuickThreadReply } from './quick-thread.ts';

/** Many times what the longest text takes. */
const HEAP_MB = 1_024;

interface Asked {
  resolve(answer: QuickAnswer): void;
  reject(error: Error): void;
}

export class QuickService {
  readonly #data: QuickThreadData;
  readonly #asked = new Map<number, Asked>();
  #thread: Worker | undefined;
  #number = 0;

  constructor(data: QuickThreadData) {
    this.#data = data;
  }

  /** Throws ApiError for what is the client's fault; any other error may not come again. */
  ask(question: QuickQuestion): Promise<QuickAnswer> {
    this.#thread ??= this.#start();
    const number = this.#number++;
    const { promise, resolve, reject } = Promise.withResolvers<QuickAnswer>();
    this.#asked.set(number, { resolve, reject });
    this.#thread.postMessage({ number, question } satisfies QuickThreadQuestion);
    return promise;
  }

  async close(): Promise<void> {
    await this.#thread?.terminate();
  }

  #start(): Worker {
    const thread = new Worker(new URL('./quick-thread.ts', import.meta.url), {
      workerData: this.#data,
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MB },
    });
    thread.on('message', (reply: QuickThreadReply) => this.#hear(reply));
    let fault: Error | undefined;
    thread.on('error', error => {
      fault = error;
    });
    thread.on('exit', code => this.#ended(thread, fault ?? new Error(`the thread of quick questions ended with code ${code}`)));
    return thread;
  }

  #hear(reply: QuickThreadReply): void {
    const asked = this.#asked.get(reply.number);
    this.#asked.delete(reply.number);
    if (asked === undefined) return;
    if ('answer' in reply) {
      asked.resolve(reply.answer);
    } else if ('refusal' in reply) {
      const { code, message, param } = reply.refusal;
      asked.reject(new ApiError(isErrorCode(code) ? code : 'generation_failed', message, param === undefined ? {} : { param }));
    } else {
      asked.reject(new Error(reply.fault));
    }
  }

  #ended(thread: Worker, error: Error): void {
    if (this.#thread !== thread) return;
    this.#thread = undefined;
    const asked = [...this.#asked.values()];
    this.#asked.clear();
    for (const { reject } of asked) reject(error);
  }
}
