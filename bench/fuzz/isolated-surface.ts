/**
 * IsolatedSurface: a surface of parts in a thread of its own. An input over which the thread hangs, runs out of memory or ends is a fault like
 * any other, and the next one goes to a new thread.
 */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import type { ThreadData, ThreadReply } from './part-thread.ts';

/** Far beyond what any input may take. */
const HANG_MS = 20_000;
const HEAP_MB = 1_024;
/** That one input may add to the process; the surfaces keep nothing. */
const GROWTH_BYTES = 768 * 2 ** 20;

export class IsolatedSurface {
  readonly #data: ThreadData;
  #thread: Worker | undefined;
  #leastBytes = Number.POSITIVE_INFINITY;

  constructor(data: ThreadData) {
    this.#data = data;
  }

  /** Throws the fault. */
  async feed(seed: number): Promise<string> {
    this.#thread ??= await this.#start();
    const thread = this.#thread;
    let reply: ThreadReply;
    try {
      const replied = answer(thread);
      thread.postMessage(seed);
      reply = await replied;
    } catch (error) {
      this.#thread = undefined;
      await thread.terminate();
      throw error;
    }
    this.#leastBytes = Math.min(this.#leastBytes, reply.residentBytes);
    if ('fault' in reply) throw new Error(reply.fault);
    if (reply.residentBytes > this.#leastBytes + GROWTH_BYTES) throw new Error(`the process grew to ${reply.residentBytes >> 20} MB`);
    return reply.outcome;
  }

  async close(): Promise<void> {
    const thread = this.#thread;
    if (thread === undefined) return;
    const ended = once(thread, 'exit');
    thread.postMessage('close');
    await ended;
  }

  async #start(): Promise<Worker> {
    const thread = new Worker(new URL('./part-thread.ts', import.meta.url), {
      workerData: this.#data,
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MB },
    });
    await answer(thread);
    return thread;
  }
}

async function answer(thread: Worker): Promise<ThreadReply> {
  const { promise, resolve, reject } = Promise.withResolvers<ThreadReply>();
  const timer = setTimeout(() => reject(new Error(`it hangs: no end after ${HANG_MS / 1000} s`)), HANG_MS);
  const ended = (code: number) => reject(new Error(`the thread ended with code ${code}`));
  thread.once('message', resolve).once('error', reject).once('exit', ended);
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
    thread.off('message', resolve).off('error', reject).off('exit', ended);
  }
}
