/**
 * Publisher: sends what generations have to tell, one batch at a time and in order. What could not be sent is sent again until it is;
 * meanwhile new events gather. After a generation's terminal event went out, its job is settled.
 */
import { isTerminal, type TokenEvent } from '../shared/token-event.ts';
import type { Generation } from './generation.ts';
import type { Dispatch, Outbox, Recipient, Standing } from './outbox.ts';

/** What has events to tell, now and then, until a terminal one. */
export interface Speaker {
  readonly recipient: Recipient;
  readonly isOver: boolean;
  /** Events since the last call. */
  takeEvents(): TokenEvent[];
}

export interface PublisherOptions<S extends Speaker = Generation> {
  outbox: Pick<Outbox, 'send'>;
  /** What Redis says of a job that is not simply to go on. */
  onStanding(generation: S, standing: Exclude<Standing, 'ok'>): void;
  /** Its terminal event is recorded. */
  onSettled(generation: S): void;
  /** These are recorded, and it goes on. */
  onRecorded?(generation: S, events: readonly TokenEvent[]): void;
  onError(error: Error): void;
}

const RETRY_PAUSE_MS = 250;
/** How often Redis is asked of one that has nothing to tell, at the most. */
const STANDING_INTERVAL_MS = 100;

export class Publisher<S extends Speaker = Generation> {
  readonly #options: PublisherOptions<S>;
  /** Each with when Redis was last asked of it, by performance.now(). */
  readonly #generations = new Map<S, number>();
  #sending: Promise<void> | undefined;
  #isWanted = false;

  constructor(options: PublisherOptions<S>) {
    this.#options = options;
  }

  add(generation: S): void {
    this.#generations.set(generation, -Infinity);
  }

  /** Says nothing more of it: another attempt owns the job. */
  drop(generation: S): void {
    this.#generations.delete(generation);
  }

  /** Sends all that is new, and asks how each job stands, of silent ones now and then; at once, or as soon as the batch under way is through. */
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
      const due = this.#takeDue();
      const standings = await this.#sendUntilThrough(due.map(({ dispatch }) => dispatch));
      due.forEach(({ generation, dispatch }, index) => {
        this.#settle(generation, dispatch, standings[index]!);
      });
    }
    this.#isWanted = false;
  }

  #takeDue(): { generation: S; dispatch: Dispatch }[] {
    const now = performance.now();
    const due: { generation: S; dispatch: Dispatch }[] = [];
    for (const [generation, askedAt] of this.#generations) {
      const events = generation.takeEvents();
      if (events.length === 0 && now - askedAt < STANDING_INTERVAL_MS) continue;
      this.#generations.set(generation, now);
      due.push({ generation, dispatch: { recipient: generation.recipient, events } });
    }
    return due;
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

  #settle(generation: S, dispatch: Dispatch, standing: Standing): void {
    if (!this.#generations.has(generation)) return;
    if (standing === 'fenced' || standing === 'behind' || standing === 'broken') {
      this.#generations.delete(generation);
      this.#options.onStanding(generation, standing);
      return;
    }
    const last = dispatch.events.at(-1);
    if (last !== undefined && isTerminal(last)) {
      this.#generations.delete(generation);
      this.#options.onSettled(generation);
      return;
    }
    if (standing === 'cancelled' && !generation.isOver) this.#options.onStanding(generation, 'cancelled');
    else if (last !== undefined) this.#options.onRecorded?.(generation, dispatch.events);
  }
}
