/**
 * Publisher: sends what generations have to tell, one batch at a time and in order. What could not be sent is sent again until it is;
 * meanwhile new events gather. After a generation's terminal event went out, its job is settled.
 */
import type { Generation } from './generation.ts';
import type { Dispatch, Outbox, Standing } from './outbox.ts';

export interface PublisherOptions {
  outbox: Pick<Outbox, 'send'>;
  /** What Redis says of a job that is not simply to go on. */
  onStanding(generation: Generation, standing: Exclude<Standing, 'ok'>): void;
  /** Its terminal event is recorded. */
  onSettled(generation: Generation): void;
  onError(error: Error): void;
}

const RETRY_PAUSE_MS = 250;

export class Publisher {
  readonly #options: PublisherOptions;
  readonly #generations = new Set<Generation>();
  #sending: Promise<void> | undefined;
  #isWanted = false;

  constructor(options: PublisherOptions) {
    this.#options = options;
  }

  add(generation: Generation): void {
    this.#generations.add(generation);
  }

  /** Says nothing more of it: another attempt owns the job. */
  drop(generation: Generation): void {
    this.#generations.delete(generation);
  }

  /** Sends all that is new, and asks how each job stands; at once, or as soon as the batch under way is through. */
  publish(): void {
    this.#isWanted = true;
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = undefined;
    });
  }

  /** Resolves when everything told so far is recorded. */
  async idle(): Promise<void> {
    while (this.#sending !== undefined) await this.#sending;
  }

  async #sendAll(): Promise<void> {
    while (this.#isWanted && this.#generations.size > 0) {
      this.#isWanted = false;
      const generations = [...this.#generations];
      const dispatches = generations.map(generation => ({ recipient: generation.recipient, events: generation.takeEvents() }));
      const standings = await this.#sendUntilThrough(dispatches);
      generations.forEach((generation, index) => {
        this.#settle(generation, dispatches[index]!, standings[index]!);
      });
    }
    this.#isWanted = false;
  }

  async #sendUntilThrough(dispatches: readonly Dispatch[]): Promise<Standing[]> {
    for (;;) {
      try {
        return await this.#options.outbox.send(dispatches);
      } catch (error) {
        this.#options.onError(error as Error);
        await new Promise(resolve => setTimeout(resolve, RETRY_PAUSE_MS));
      }
    }
  }

  #settle(generation: Generation, dispatch: Dispatch, standing: Standing): void {
    if (!this.#generations.has(generation)) return;
    if (standing === 'fenced' || standing === 'broken') {
      this.#generations.delete(generation);
      this.#options.onStanding(generation, standing);
      return;
    }
    const last = dispatch.events.at(-1);
    if (last !== undefined && (last.type === 'finish' || last.type === 'error')) {
      this.#generations.delete(generation);
      this.#options.onSettled(generation);
      return;
    }
    if (standing === 'cancelled' && !generation.isOver) this.#options.onStanding(generation, 'cancelled');
  }
}
