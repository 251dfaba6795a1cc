/**
 * GrammarCompiler: compiles structures beside the event loop, in a thread that is bounded in time and memory: what takes more is refused, and the next
 * one gets a new thread. One structure at a time, in order.
 */
import { Worker } from 'node:worker_threads';
import type { Automaton } from './automaton.ts';
import { GrammarError } from './grammar.ts';
import type { CompileReply } from './grammar-compilation.ts';
import type { AnswerForm } from './reasoned-structure.ts';
import type { Spelling } from './spelled-vocabulary.ts';

export interface GrammarCompilerOptions {
  spelling: Spelling;
  /** For one structure. */
  timeoutMs: number;
  memoryMegabytes: number;
}

export class GrammarCompiler {
  readonly #options: GrammarCompilerOptions;
  #thread: Worker | undefined;
  #last: Promise<unknown> = Promise.resolve();
  #isClosed = false;

  constructor(options: GrammarCompilerOptions) {
    this.#options = options;
    // Ready before the first structure comes.
    this.#thread = this.#open();
  }

  /** Throws GrammarError. */
  compile(structure: AnswerForm): Promise<Automaton> {
    const result = this.#last.then(() => this.#run(structure));
    this.#last = result.catch(() => undefined);
    return result;
  }

  /** What is being compiled fails. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#thread?.terminate();
  }

  async #run(structure: AnswerForm): Promise<Automaton> {
    if (this.#isClosed) throw new Error('The compiler of grammars is closed.');
    this.#thread ??= this.#open();
    let reply: CompileReply;
    try {
      reply = await this.#ask(this.#thread, structure);
    } catch (error) {
      const thread = this.#thread;
      this.#thread = undefined;
      await thread.terminate();
      throw error;
    }
    if ('automaton' in reply) return reply.automaton;
    const { message, where, param } = reply.refusal;
    throw new GrammarError(message, where, param);
  }

  #ask(thread: Worker, structure: AnswerForm): Promise<CompileReply> {
    const { timeoutMs } = this.#options;
    const { promise, resolve, reject } = Promise.withResolvers<CompileReply>();
    const onError = (error: Error & { code?: string }): void => {
      reject(error.code === 'ERR_WORKER_OUT_OF_MEMORY' ? new GrammarError('it takes too much memory to prepare') : error);
    };
    const onExit = (): void => reject(new Error('The compiler of grammars ended.'));
    const timer = setTimeout(() => reject(new GrammarError(`it takes longer than ${timeoutMs} ms to prepare`)), timeoutMs);
    thread.on('message', resolve).on('error', onError).on('exit', onExit);
    thread.ref();
    try {
      thread.postMessage(structure);
    } catch {
      // Only JSON is sent; what cannot be copied is nested beyond the stack.
      reject(new GrammarError('it is nested too deep'));
    }
    return promise.finally(() => {
      clearTimeout(timer);
      thread.off('message', resolve).off('error', onError).off('exit', onExit);
      // An idle thread keeps nobody from ending.
      thread.unref();
    });
  }

  #open(): Worker {
    const { spelling, memoryMegabytes } = this.#options;
    const thread = new Worker(new URL('./compile-thread.ts', import.meta.url), {
      workerData: spelling,
      resourceLimits: { maxOldGenerationSizeMb: memoryMegabytes, maxYoungGenerationSizeMb: memoryMegabytes / 4, stackSizeMb: 4 },
      name: 'grammar-compiler',
    });
    thread.unref();
    return thread;
  }
}
