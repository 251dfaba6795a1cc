/**
 * PrefixDirectory: which beginnings of prompts each batcher holds, as the edge knows it from what batchers tell; and the form in which they do.
 * Guarantee: a batcher's part is always exactly one state that it told (short of the bound), or nothing; a gap is noticed, never papered over.
 *
 * A batcher numbers its changes: in an epoch (which begins with nothing held) update 0, 1, 2 …. What all of them up to the last give is kept in Redis as the
 * batcher's snapshot. A follower reads the snapshot once and applies the updates that come after it; on a gap it reads the snapshot again.
 *
 *     apply(update) ─ the next one ─▶ applied
 *                   ├ an old one ───▶ known
 *                   └ else ─────────▶ gap: kept aside until load(snapshot) has caught up with it
 */
import { z } from 'zod';
import { PREFIX_HEAD } from './keys.ts';
import { HASH_LENGTH, PREFIX_VERSION } from './prefix.ts';

export interface PrefixUpdate {
  batcherId: string;
  /** Later ones are larger. */
  epoch: number;
  /** From 0 in each epoch. */
  seq: number;
  /** Hash of a text block, and the prompt tokens that are held up to its end. */
  added: readonly (readonly [hash: string, tokens: number])[];
  evicted: readonly string[];
}

export interface PrefixSnapshot {
  batcherId: string;
  epoch: number;
  /** The last update in it. */
  seq: number;
  held: readonly (readonly [hash: string, tokens: number])[];
}

const Hashes = z.string().regex(new RegExp(`^(?:[A-Za-z0-9_-]{${HASH_LENGTH}})*$`));
const Tokens = z.int().min(0);

/** Hashes are joined: all are of one length. */
const WireUpdate = z
  .looseObject({
    version: z.literal(PREFIX_VERSION),
    batcherId: z.string().min(1),
    epoch: z.int().min(0),
    seq: z.int().min(0),
    added: Hashes,
    tokens: z.array(Tokens),
    evicted: Hashes,
  })
  .refine(({ added, tokens }) => added.length === tokens.length * HASH_LENGTH);

export function encodeUpdate({ batcherId, epoch, seq, added, evicted }: PrefixUpdate): string {
  const wire: z.input<typeof WireUpdate> = {
    version: PREFIX_VERSION,
    batcherId,
    epoch,
    seq,
    added: added.map(([hash]) => hash).join(''),
    tokens: added.map(([, tokens]) => tokens),
    evicted: evicted.join(''),
  };
  return JSON.stringify(wire);
}

/** Undefined for what is no update of this version. */
export function decodeUpdate(json: string): PrefixUpdate | undefined {
  const wire = WireUpdate.safeParse(parsed(json)).data;
  if (wire === undefined) return undefined;
  const { batcherId, epoch, seq, tokens } = wire;
  const added = split(wire.added).map((hash, index) => [hash, tokens[index]!] as const);
  return { batcherId, epoch, seq, added, evicted: split(wire.evicted) };
}

/** The field PREFIX_HEAD of a snapshot in Redis. */
export function encodeHead({ epoch, seq }: { epoch: number; seq: number }): string {
  return `${PREFIX_VERSION}.${epoch}.${seq}`;
}

const HEAD = /^(\d+)\.(\d{1,16})\.(\d{1,16})$/;

/** A snapshot from the fields of its Redis hash; undefined when there is none, or none of this version. */
export function decodeSnapshot(batcherId: string, fields: Readonly<Record<string, string>>): PrefixSnapshot | undefined {
  const head = HEAD.exec(fields[PREFIX_HEAD] ?? '');
  if (head === null || Number(head[1]) !== PREFIX_VERSION) return undefined;
  const held: [string, number][] = [];
  for (const [hash, text] of Object.entries(fields)) {
    if (hash === PREFIX_HEAD) continue;
    const tokens = Tokens.safeParse(Number(text)).data;
    if (tokens !== undefined && hash.length === HASH_LENGTH) held.push([hash, tokens]);
  }
  return { batcherId, epoch: Number(head[2]), seq: Number(head[3]), held };
}

/** How much of a prompt a batcher holds. */
export interface PrefixMatch {
  batcherId: string;
  blockCount: number;
  /** Prompt tokens that it need not compute. */
  tokens: number;
}

interface Followed {
  epoch: number;
  seq: number;
  /** Tokens by hash, longest known first. */
  held: Map<string, number>;
}

/** While a snapshot is on its way; what does not fit shows as a gap once more. */
const ASIDE_LIMIT = 64;
const DEFAULT_MAX_ENTRIES = 65_536;

export class PrefixDirectory {
  readonly #followed = new Map<string, Followed>();
  /** Updates that came behind a gap. */
  readonly #aside = new Map<string, PrefixUpdate[]>();
  readonly #maxEntries: number;

  /** `maxEntries` bounds each batcher's part, whatever it tells; what it told first goes first. */
  constructor({ maxEntries = DEFAULT_MAX_ENTRIES }: { maxEntries?: number } = {}) {
    this.#maxEntries = maxEntries;
  }

  get batcherIds(): string[] {
    return [...this.#followed.keys()];
  }

  get entryCount(): number {
    let count = 0;
    for (const { held } of this.#followed.values()) count += held.size;
    return count;
  }

  apply(update: PrefixUpdate): 'applied' | 'known' | 'gap' {
    const followed = this.#followed.get(update.batcherId);
    if (followed !== undefined && !isAfter(update, followed)) return 'known';
    if (update.seq === 0) {
      this.#take({ epoch: update.epoch, seq: -1, held: new Map() }, update);
      return 'applied';
    }
    if (followed?.epoch === update.epoch && followed.seq + 1 === update.seq) {
      this.#take(followed, update);
      return 'applied';
    }
    const aside = this.#aside.get(update.batcherId) ?? [];
    aside.push(update);
    if (aside.length > ASIDE_LIMIT) aside.shift();
    this.#aside.set(update.batcherId, aside);
    return 'gap';
  }

  /** Takes a snapshot, unless something later is known, and what was kept aside. A gap may be left: then the snapshot was too old. */
  load(snapshot: PrefixSnapshot): 'applied' | 'known' | 'gap' {
    const { batcherId, epoch, seq } = snapshot;
    const followed = this.#followed.get(batcherId);
    const isNews = followed === undefined || isAfter(snapshot, followed);
    if (isNews) {
      const held = new Map(snapshot.held);
      this.#keepBound(held);
      this.#followed.set(batcherId, { epoch, seq, held });
    }
    const aside = this.#aside.get(batcherId) ?? [];
    this.#aside.delete(batcherId);
    const results = aside.map(update => this.apply(update));
    if (results.at(-1) === 'gap') return 'gap';
    return isNews ? 'applied' : 'known';
  }

  /** Forgets a batcher: it is gone, or its card is stale. */
  remove(batcherId: string): void {
    this.#followed.delete(batcherId);
    this.#aside.delete(batcherId);
  }

  /** Of each batcher that holds the first block at least, how far it goes; the longest first. */
  match(hashes: readonly string[]): PrefixMatch[] {
    const matches: PrefixMatch[] = [];
    for (const [batcherId, { held }] of this.#followed) {
      let blockCount = 0;
      let tokens = 0;
      for (const hash of hashes) {
        const upToHere = held.get(hash);
        if (upToHere === undefined) break;
        tokens = upToHere;
        blockCount += 1;
      }
      if (blockCount > 0) matches.push({ batcherId, blockCount, tokens });
    }
    return matches.sort((a, b) => b.blockCount - a.blockCount || b.tokens - a.tokens);
  }

  /** Throws when a bound or the order of updates is broken. */
  check(): void {
    for (const [batcherId, { held, seq, epoch }] of this.#followed) {
      if (held.size > this.#maxEntries) throw new Error(`Prefix directory: ${batcherId} has ${held.size} entries.`);
      if (seq < 0 || epoch < 0) throw new Error(`Prefix directory: ${batcherId} is in no state.`);
    }
    for (const [batcherId, aside] of this.#aside) {
      const followed = this.#followed.get(batcherId);
      if (aside.length === 0 || aside.length > ASIDE_LIMIT)
        throw new Error(`Prefix directory: ${aside.length} updates of ${batcherId} wait.`);
      if (followed !== undefined && aside.some(({ epoch, seq }) => epoch === followed.epoch && seq === followed.seq + 1))
        throw new Error(`Prefix directory: the next update of ${batcherId} was kept aside.`);
    }
  }

  #take(followed: Followed, { batcherId, seq, added, evicted }: PrefixUpdate): void {
    for (const [hash, tokens] of added) followed.held.set(hash, tokens);
    for (const hash of evicted) followed.held.delete(hash);
    followed.seq = seq;
    this.#keepBound(followed.held);
    this.#followed.set(batcherId, followed);
  }

  #keepBound(held: Map<string, number>): void {
    for (const hash of held.keys()) {
      if (held.size <= this.#maxEntries) return;
      held.delete(hash);
    }
  }
}

function isAfter(a: { epoch: number; seq: number }, b: { epoch: number; seq: number }): boolean {
  return a.epoch > b.epoch || (a.epoch === b.epoch && a.seq > b.seq);
}

function split(joined: string): string[] {
  return Array.from({ length: joined.length / HASH_LENGTH }, (_, index) => joined.slice(index * HASH_LENGTH, (index + 1) * HASH_LENGTH));
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}
