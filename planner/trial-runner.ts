/**
 * TrialRunner: trials of one scenario on all processors. A large fleet is cut into parts that run beside each other, each with its own queue; at a
 * hundred batchers and more that makes no difference that could be seen, since a queue for so many never has a wait that a larger one would save.
 */
import { Worker } from 'node:worker_threads';
import { type Scenario, type Trial, type TrialData, type TrialFigures, trialFigures } from './simulation.ts';
import type { TrialPart } from './trial-thread.ts';

/** Batchers of one part, at the least. */
const LEAST_PART = 100;

interface Thread {
  worker: Worker;
  openCount: number;
}

export class TrialRunner implements AsyncDisposable {
  readonly #scenario: Scenario;
  readonly #threads: Thread[];
  readonly #waiting = new Map<number, PromiseWithResolvers<TrialData>>();
  #ticket = 0;

  constructor(scenario: Scenario, threadCount: number) {
    this.#scenario = scenario;
    this.#threads = Array.from({ length: threadCount }, () => {
      const worker = new Worker(new URL('./trial-thread.ts', import.meta.url), { workerData: scenario });
      const thread: Thread = { worker, openCount: 0 };
      worker.on('message', ({ ticket, data }: { ticket: number; data: TrialData }) => {
        thread.openCount -= 1;
        this.#take(ticket)?.resolve(data);
      });
      worker.on('error', error => this.#fail(error));
      return thread;
    });
  }

  /** `requestCount` where it is to be another than the scenario's. */
  async run(trial: Trial, requestCount = this.#scenario.requestCount): Promise<TrialFigures> {
    const sizes = this.#partSizes(trial.batcherCount);
    const parts = await Promise.all(
      sizes.map((batcherCount, index) => {
        const share = batcherCount / trial.batcherCount;
        return this.#send({
          trial: { rate: trial.rate * share, batcherCount },
          count: Math.max(1, Math.round(requestCount * share)),
          seed: this.#scenario.seed + index,
          share,
        });
      }),
    );
    return trialFigures(trial, this.#scenario.objectives, parts);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#threads.map(({ worker }) => worker.terminate()));
  }

  /** Independent users can be told off to parts by chance; whoever shares a prefix or comes in a burst stays with the others. */
  #partSizes(batcherCount: number): number[] {
    const { arrivals, trace } = this.#scenario;
    const isDivisible = arrivals === 'poisson' && trace.blockTokens === undefined;
    const partCount = isDivisible ? Math.max(1, Math.min(this.#threads.length, Math.floor(batcherCount / LEAST_PART))) : 1;
    return Array.from({ length: partCount }, (_, index) => Math.floor((batcherCount + index) / partCount));
  }

  #send(part: Omit<TrialPart, 'ticket'>): Promise<TrialData> {
    this.#ticket += 1;
    const done = Promise.withResolvers<TrialData>();
    this.#waiting.set(this.#ticket, done);
    const thread = this.#threads.reduce((least, one) => (one.openCount < least.openCount ? one : least));
    thread.openCount += 1;
    thread.worker.postMessage({ ...part, ticket: this.#ticket });
    return done.promise;
  }

  #take(ticket: number): PromiseWithResolvers<TrialData> | undefined {
    const done = this.#waiting.get(ticket);
    this.#waiting.delete(ticket);
    return done;
  }

  #fail(error: unknown): void {
    for (const ticket of [...this.#waiting.keys()]) this.#take(ticket)?.reject(error);
  }
}
