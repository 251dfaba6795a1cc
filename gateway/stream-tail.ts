/**
 * StreamTail: reads a broker shard's stream as it grows. From the moment that start() resolves no entry is missed while the stream
 * keeps it, over any number of lost connections.
 */
import { readableEvents, type TokenEvent } from '../shared/token-event.ts';
import type { RedisLink } from './redis.ts';
import type { StreamReply } from './redis-driver.js';

export interface StreamTailOptions {
  /** A connection of its own, since reading blocks it. */
  link: RedisLink;
  commands: RedisLink;
  key: string;
  /** Events in the order of the stream, many at a time under load. */
  onEvents(events: readonly TokenEvent[]): void;
  /** What was written meanwhile may have left the stream again: ask the records. */
  onInterrupted(): void;
  onTrouble(message: string): void;
}

/** An entry holds a step's events for all jobs, some tens of kilobytes: what one read brings must fit in memory many times over. */
const BATCH_ENTRIES = 64;
const BLOCK_MS = 2_000;
/** A reply to XREAD that is this much late will not come. */
const GRACE_MS = 3_000;
const PAUSE_MS = 200;
const BEGINNING = '0-0';

export class StreamTail {
  readonly #options: StreamTailOptions;
  #position = BEGINNING;
  #started: Promise<void> | undefined;
  #isStopped = false;
  #pending: { isLateAt: number; tellLate(): void } | undefined;

  constructor(options: StreamTailOptions) {
    this.#options = options;
  }

  /** Once; resolves when the place is marked from which on everything is read. */
  start(): Promise<void> {
    this.#started ??= this.#begin().catch(error => {
      this.#started = undefined;
      throw error;
    });
    return this.#started;
  }

  /** Closes its connection. */
  stop(): void {
    this.#isStopped = true;
    this.#options.link.close();
  }

  async #begin(): Promise<void> {
    // `$` would be looked up when XREAD arrives, which may be after the first answer to a job that was queued before.
    this.#position = await this.#lastId();
    // One timer for all reads: one each costs as much as a read.
    const watch = setInterval(() => {
      if (this.#pending !== undefined && Date.now() >= this.#pending.isLateAt) this.#pending.tellLate();
    }, GRACE_MS / 3);
    void this.#follow().finally(() => clearInterval(watch));
  }

  async #lastId(): Promise<string> {
    const last = await this.#options.commands.run(client => client.xrevrange(this.#options.key, '+', '-', 'COUNT', 1));
    return last[0]?.[0] ?? BEGINNING;
  }

  async #follow(): Promise<void> {
    let isInterrupted = false;
    while (!this.#isStopped) {
      try {
        if (isInterrupted && this.#options.link.isConnected) {
          await this.#recover();
          isInterrupted = false;
        }
        const reply = await this.#read();
        if (reply === 'late') {
          this.#options.link.client.disconnect(true);
          isInterrupted = true;
        } else if (reply !== null) {
          this.#deliver(reply);
        }
      } catch (error) {
        if (this.#isStopped) return;
        isInterrupted = true;
        // A lost connection is told by the link.
        if (this.#options.link.isConnected) this.#options.onTrouble(error instanceof Error ? error.message : String(error));
        await new Promise(resolve => setTimeout(resolve, PAUSE_MS));
      }
    }
  }

  /** Should the stream have begun anew, with older ids than ours, nothing would ever come after our place. */
  async #recover(): Promise<void> {
    const lastId = await this.#lastId();
    if (isBefore(lastId, this.#position)) this.#position = lastId;
    this.#options.onInterrupted();
  }

  async #read(): Promise<StreamReply | null | 'late'> {
    const { promise: late, resolve } = Promise.withResolvers<'late'>();
    this.#pending = { isLateAt: Date.now() + BLOCK_MS + GRACE_MS, tellLate: () => resolve('late') };
    try {
      const reply = this.#options.link.client.xread(
        'COUNT',
        BATCH_ENTRIES,
        'BLOCK',
        BLOCK_MS,
        'STREAMS',
        this.#options.key,
        this.#position,
      );
      reply.catch(() => undefined);
      return await Promise.race([reply, late]);
    } finally {
      this.#pending = undefined;
    }
  }

  #deliver(reply: StreamReply): void {
    const events: TokenEvent[] = [];
    for (const [, entries] of reply) {
      for (const [id, fields] of entries) {
        this.#position = id;
        const readable = readableEvents(fields[1] ?? '');
        // Of a job whose event is missing here the record is asked.
        if (readable.length === 0) this.#options.onTrouble(`entry ${id} of ${this.#options.key} cannot be read`);
        events.push(...readable);
      }
    }
    this.#options.onEvents(events);
  }
}

/** Ids are `<milliseconds>-<counter>`. */
function isBefore(id: string, other: string): boolean {
  const [ms = 0, counter = 0] = id.split('-').map(Number);
  const [otherMs = 0, otherCounter = 0] = other.split('-').map(Number);
  return ms < otherMs || (ms === otherMs && counter < otherCounter);
}
