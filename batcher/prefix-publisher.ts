/**
 * PrefixPublisher: tells the edge what this batcher holds: after a change, at most once an interval, and all that gathered in it at once.
 * Guarantee: updates are numbered without a gap, and when Redis has lost the state, or it is not known to have it, a new epoch tells everything.
 */
import { PREFIX_CHANGES_PER_ENTRY, PREFIX_INTERVAL_MS, PREFIX_LIFETIME_MS } from '../shared/keys.ts';
import type { PrefixUpdate } from '../shared/prefix-directory.ts';
import type { HeldPrefixes } from './held-prefixes.ts';
import type { PrefixOutbox } from './prefix-outbox.ts';

export interface PrefixPublisherOptions {
  batcherId: string;
  held: Pick<HeldPrefixes, 'hasChanges' | 'takeChanges' | 'startAnew'>;
  outbox: Pick<PrefixOutbox, 'send' | 'keep' | 'withdraw'>;
  /** Epoch milliseconds: an epoch is named by when it began, so that another process of the same name goes on above it. */
  clock(): number;
  onError(error: Error): void;
}

/** Telling everything costs the most: not more often than this. */
const ANEW_PAUSE_MS = 1_000;

export class PrefixPublisher {
  readonly #options: PrefixPublisherOptions;
  #epoch = 0;
  #nextSeq = 0;
  #timer: NodeJS.Timeout | undefined;
  #keeper: NodeJS.Timeout | undefined;
  #sending: Promise<void> | undefined;
  #isStopped = false;

  constructor(options: PrefixPublisherOptions) {
    this.#options = options;
  }

  start(): void {
    this.changed();
    this.#keeper = setInterval(() => void this.#keep(), PREFIX_LIFETIME_MS / 3);
  }

  /** There is something to tell. */
  changed(): void {
    this.#schedule(PREFIX_INTERVAL_MS);
  }

  /** Tells what there is now, or as soon as what is being sent is through. */
  async flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    while (this.#sending !== undefined) await this.#sending;
    await this.#sendAlone(() => this.#sendChanges());
  }

  /** Nobody is to look for anything here any more. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    clearInterval(this.#keeper);
    while (this.#sending !== undefined) await this.#sending;
    await this.#options.outbox.withdraw(this.#options.batcherId);
  }

  #schedule(delayMs: number): void {
    if (this.#isStopped || this.#timer !== undefined || this.#sending !== undefined) return;
    this.#timer = setTimeout(() => void this.flush(), delayMs);
  }

  async #keep(): Promise<void> {
    if (this.#sending !== undefined || this.#nextSeq === 0) return;
    const { outbox, batcherId } = this.#options;
    await this.#sendAlone(() => outbox.keep({ batcherId, epoch: this.#epoch, seq: this.#nextSeq - 1 }));
  }

  async #sendChanges(): Promise<'ok' | 'behind'> {
    const { outbox, held } = this.#options;
    const updates: PrefixUpdate[] = [];
    while (held.hasChanges) updates.push(this.#nextUpdate());
    return outbox.send(updates);
  }

  #nextUpdate(): PrefixUpdate {
    const { held, batcherId, clock } = this.#options;
    const { isAnew, added, evicted } = held.takeChanges(PREFIX_CHANGES_PER_ENTRY);
    if (isAnew) {
      this.#epoch = Math.max(clock(), this.#epoch + 1);
      this.#nextSeq = 0;
    }
    return { batcherId, epoch: this.#epoch, seq: this.#nextSeq++, added, evicted };
  }

  /** After a failure it is not known what has arrived. */
  async #sendAlone(send: () => Promise<'ok' | 'behind'>): Promise<void> {
    const { held, onError } = this.#options;
    let delayMs = PREFIX_INTERVAL_MS;
    const sending = (async () => {
      try {
        if ((await send()) === 'ok') return;
      } catch (error) {
        onError(error as Error);
      }
      held.startAnew();
      delayMs = ANEW_PAUSE_MS;
    })();
    this.#sending = sending;
    await sending;
    this.#sending = undefined;
    if (held.hasChanges) this.#schedule(delayMs);
  }
}
