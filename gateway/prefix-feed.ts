/**
 * PrefixFeed: keeps a directory of prefixes as new as the batchers tell: a snapshot of each batcher once, then what has changed since. It reads
 * by itself while requests come and for a minute after; a request waits for it only after a longer silence, for two answers of Redis at most.
 */
import { type BatcherCard, isFresh } from '../shared/batcher-card.ts';
import { PREFIX_CHANGES, prefixesKey } from '../shared/keys.ts';
import { decodeSnapshot, decodeUpdate, type PrefixDirectory } from '../shared/prefix-directory.ts';

/** Of RedisLink what is used here. */
export interface FeedLink {
  run<T>(command: (client: FeedClient) => Promise<T>): Promise<T>;
}

interface FeedClient {
  hgetall(key: string): Promise<Record<string, string>>;
  xrange(key: string, from: string, to: string, count: 'COUNT', limit: number): Promise<[string, string[]][]>;
  xrevrange(key: string, from: string, to: string, count: 'COUNT', limit: number): Promise<[string, string[]][]>;
}

/** As often as batchers tell. */
const POLL_MS = 200;
const FOLLOW_MS = 60_000;
/** A request that finds what was read this long ago reads for itself. */
const MAX_AGE_MS = 400;
const ENTRIES_PER_READ = 100;
/** A snapshot that was too old is read again, but not at once. */
const SNAPSHOT_PAUSE_MS = 500;

/** An entry of the stream. Ids begin anew with a stream: only the text tells two entries of one millisecond apart. */
interface Entry {
  id: string;
  text: string;
}
/** Before all entries. */
const BEGINNING: Entry = { id: '0-0', text: '' };

export class PrefixFeed {
  readonly #link: FeedLink;
  readonly #directory: PrefixDirectory;
  readonly #onTrouble: (message: string) => void;
  /** The last entry that was read; undefined before the first look. */
  #position: Entry | undefined;
  #readAt = 0;
  #reading: Promise<void> | undefined;
  /** When follow was last called. */
  #wantedAt = 0;
  #isFollowing = false;
  /** When a snapshot was last asked for. */
  readonly #asked = new Map<string, number>();
  /** Of these changes were missed. */
  readonly #behind = new Set<string>();

  constructor(options: { link: FeedLink; directory: PrefixDirectory; onTrouble(message: string): void }) {
    this.#link = options.link;
    this.#directory = options.directory;
    this.#onTrouble = options.onTrouble;
  }

  /** Brings the directory up to date for these batchers, and makes it forget all others. Never throws: an old directory costs a worse route. */
  async refresh(cards: readonly BatcherCard[], now: number): Promise<void> {
    this.#keepOnly(cards, now);
    if (now - this.#readAt >= MAX_AGE_MS) await this.#readOnce(now);
    const known = new Set(this.#directory.batcherIds);
    const wanting = cards.filter(card => isFresh(card, now) && (!known.has(card.batcherId) || this.#behind.has(card.batcherId)));
    const asked = wanting.map(async ({ batcherId }) => {
      // Whoever has nothing to tell is asked again and again: nobody waits for that.
      const isFirst = !this.#asked.has(batcherId);
      const answered = this.#ask(batcherId, now);
      if (isFirst) await answered;
    });
    await Promise.all(asked);
  }

  /** Reads by itself, until this has not been called for a minute. */
  follow(cards: () => Promise<readonly BatcherCard[]>): void {
    this.#wantedAt = Date.now();
    if (this.#isFollowing) return;
    this.#isFollowing = true;
    void this.#run(cards);
  }

  async #run(cards: () => Promise<readonly BatcherCard[]>): Promise<void> {
    while (Date.now() - this.#wantedAt < FOLLOW_MS) {
      await new Promise(resolve => setTimeout(resolve, POLL_MS));
      try {
        const now = Date.now();
        await this.#readOnce(now);
        await this.refresh(await cards(), now);
      } catch {
        // Redis is away: the next round.
      }
    }
    this.#isFollowing = false;
  }

  #readOnce(now: number): Promise<void> {
    this.#reading ??= this.#read(now).finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  #keepOnly(cards: readonly BatcherCard[], now: number): void {
    const fresh = new Set(cards.filter(card => isFresh(card, now)).map(card => card.batcherId));
    for (const id of this.#directory.batcherIds) if (!fresh.has(id)) this.#directory.remove(id);
    for (const id of this.#asked.keys()) if (!fresh.has(id)) this.#asked.delete(id);
    for (const id of this.#behind) if (!fresh.has(id)) this.#behind.delete(id);
  }

  async #read(now: number): Promise<void> {
    try {
      // Snapshots are read after the place is marked, so that nothing lies between.
      if (this.#position === undefined) this.#position = await this.#last();
      else await this.#readChanges(this.#position);
      this.#readAt = now;
    } catch (error) {
      this.#onTrouble(error instanceof Error ? error.message : String(error));
    }
  }

  async #readChanges(from: Entry): Promise<void> {
    // From our own entry on, not behind it: whether it is still ours tells whether the stream is.
    const read = await this.#link.run(client => client.xrange(PREFIX_CHANGES, from.id, '+', 'COUNT', ENTRIES_PER_READ));
    const entries = read.map(entryOf);
    if (entries[0]?.id === from.id && entries[0].text === from.text) entries.shift();
    for (const entry of entries) {
      this.#position = entry;
      const update = decodeUpdate(entry.text);
      if (update !== undefined && this.#directory.apply(update) === 'gap') this.#behind.add(update.batcherId);
    }
    // More than one answer holds is read by the next ones, or found to be gone and read as snapshots.
    if (read.length === ENTRIES_PER_READ) void this.#readChanges(this.#position!).catch(() => undefined);
    // A stream that began anew, with older ids than ours, would never be heard again.
    else if (read.length === 0 && isBefore((await this.#last()).id, from.id)) this.#position = BEGINNING;
  }

  async #last(): Promise<Entry> {
    const [last] = await this.#link.run(client => client.xrevrange(PREFIX_CHANGES, '+', '-', 'COUNT', 1));
    return last === undefined ? BEGINNING : entryOf(last);
  }

  async #ask(batcherId: string, now: number): Promise<void> {
    if (now - (this.#asked.get(batcherId) ?? Number.NEGATIVE_INFINITY) < SNAPSHOT_PAUSE_MS) return;
    this.#asked.set(batcherId, now);
    await this.#link
      .run(client => client.hgetall(prefixesKey(batcherId)))
      .then(fields => {
        const snapshot = decodeSnapshot(batcherId, fields);
        if (snapshot !== undefined && this.#directory.load(snapshot) !== 'gap') this.#behind.delete(batcherId);
      })
      .catch(error => this.#onTrouble(String(error)));
  }
}

function entryOf([id, fields]: [string, string[]]): Entry {
  return { id, text: fields[1] ?? '' };
}

/** Ids are `<milliseconds>-<counter>`. */
function isBefore(id: string, other: string): boolean {
  const [ms = 0, counter = 0] = id.split('-').map(Number);
  const [otherMs = 0, otherCounter = 0] = other.split('-').map(Number);
  return ms < otherMs || (ms === otherMs && counter < otherCounter);
}
