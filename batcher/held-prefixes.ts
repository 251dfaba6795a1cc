/**
 * HeldPrefixes: which text blocks this batcher's KV store holds, and what of that is news to the edge.
 * Guarantee: a text block is held while the KV blocks of some path that cover it are stored, as far as the bound allows; the changes taken,
 * one after the other, always give what is held.
 *
 * A text block hangs on the last of the KV blocks that cover it: the store evicts a path from its end, so while that one is there, all before
 * it are. Several KV blocks may carry one text block, where what follows it differs; it is gone with the last of them.
 *
 *     text    |──── h1 ────|──── h2 ────|──── h3 ────|─ …
 *     tokens  |··|··|··|··|··|··|··|··|··|··|··|··|··|        h1 hangs on the 5th KV block here and saves the 4 that are wholly its own
 */

import type { Prompt } from '../shared/job.ts';
import { answerHead, PrefixChain, promptBytes, tokenIdBytes } from '../shared/prefix.ts';
import type { StoreListener } from './kv/kv-cache.ts';
import { textCoverage } from './text-coverage.ts';

export interface HeldPrefixesOptions {
  /** Tokens of a KV block. */
  blockTokens: number;
  /** Text blocks held at most; past it the least recently stored go. */
  maxEntries: number;
  /** Requests that have ended and may still be stored, since their rows are given back a step later. */
  maxClosed: number;
  /** Text of a token; control tokens spelled, or hidden as in an answer. */
  tokenBytes(tokenId: number, controlTokens: 'spelled' | 'hidden'): Uint8Array;
  /** Tokens of a stored path. */
  pathTokenIds(blockId: number): readonly number[];
  /** There is news. */
  onChanged(): void;
}

/** What is to be told; followed by other changes when it was limited. */
export interface PrefixChanges {
  /** What was told before counts for nothing. */
  isAnew: boolean;
  /** Hash of a text block, and the prompt tokens that it saves with all before it. */
  added: [hash: string, tokens: number][];
  evicted: string[];
}

/** A request, as far as it concerns its text. */
interface Owner {
  kind: Prompt['kind'];
  promptTokens: number;
  /** Of the prompt's whole blocks, and the number of first tokens that hold each. */
  hashes: string[];
  needs: number[];
  /** Stands at the end of the prompt. */
  chain: PrefixChain;
}

interface Entry {
  tokens: number;
  /** KV blocks that it hangs on; never empty. */
  blockIds: number[];
}

export class HeldPrefixes implements StoreListener {
  readonly #options: HeldPrefixesOptions;
  readonly #owners = new Map<string, Owner>();
  /** Ended ones, oldest first. */
  readonly #closed = new Set<string>();
  /** Least recently stored first. Of one path the later blocks come before the earlier ones, so that what is left is always a beginning. */
  readonly #entries = new Map<string, Entry>();
  readonly #hashesOn = new Map<number, string[]>();
  /** Since the last take: tokens of what is held, undefined for what is not. */
  readonly #changes = new Map<string, number | undefined>();
  #isAnew = true;

  constructor(options: HeldPrefixesOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#entries.size;
  }

  has(hash: string): boolean {
    return this.#entries.has(hash);
  }

  /** A request whose tokens may come to be stored. */
  open(id: string, request: { tenant: string; prompt: Prompt; promptTokenIds: readonly number[] }): void {
    const { tenant, prompt, promptTokenIds } = request;
    const { kind } = prompt;
    const bytes = promptBytes(prompt);
    const chain = new PrefixChain(tenant);
    const needs = textCoverage({
      bytes,
      kind,
      tokenIds: promptTokenIds,
      tokenBytes: tokenId => this.#options.tokenBytes(tokenId, 'spelled'),
    });
    this.#closed.delete(id);
    this.#owners.set(id, { kind, promptTokens: promptTokenIds.length, hashes: chain.push(bytes), needs, chain });
  }

  /** The request has ended; what it computed may be stored once more. */
  close(id: string): void {
    if (!this.#owners.has(id)) return;
    this.#closed.add(id);
    for (const oldest of this.#closed) {
      if (this.#closed.size <= this.#options.maxClosed) break;
      this.#closed.delete(oldest);
      this.#owners.delete(oldest);
    }
  }

  stored(path: { owner: string; blockIds: readonly number[] }): void {
    const owner = this.#owners.get(path.owner);
    if (owner === undefined) return;
    const { blockIds } = path;
    const { blockTokens } = this.#options;
    const answer = blockIds.length * blockTokens > owner.promptTokens ? this.#answerBlocks(owner, blockIds.at(-1)!) : NO_BLOCKS;
    const hashes = [...owner.hashes, ...answer.hashes];
    const needs = [...owner.needs, ...answer.needs];
    // From the end: what is stored last is dropped last.
    for (let block = hashes.length - 1; block >= 0; block -= 1) {
      const need = needs[block]!;
      const blockId = blockIds[Math.ceil(need / blockTokens) - 1];
      if (blockId === undefined) continue;
      // A prompt that goes on otherwise shares whole KV blocks only, and may cut the text into other tokens right at the end.
      this.#hang(hashes[block]!, blockId, Math.floor((need - 1) / blockTokens) * blockTokens);
    }
    this.#keepBound();
    if (this.#changes.size > 0) this.#options.onChanged();
  }

  evicted(blockId: number): void {
    const hashes = this.#hashesOn.get(blockId);
    if (hashes === undefined) return;
    this.#hashesOn.delete(blockId);
    for (const hash of hashes) {
      const entry = this.#entries.get(hash)!;
      entry.blockIds.splice(entry.blockIds.indexOf(blockId), 1);
      if (entry.blockIds.length > 0) continue;
      this.#entries.delete(hash);
      this.#changed(hash, undefined);
    }
    if (this.#changes.size > 0) this.#options.onChanged();
  }

  get hasChanges(): boolean {
    return this.#isAnew || this.#changes.size > 0;
  }

  /** At most so many of the changes since the last call. */
  takeChanges(limit: number): PrefixChanges {
    const taken: PrefixChanges = { isAnew: this.#isAnew, added: [], evicted: [] };
    this.#isAnew = false;
    let count = 0;
    for (const [hash, tokens] of this.#changes) {
      if (count === limit) break;
      count += 1;
      this.#changes.delete(hash);
      if (tokens === undefined) taken.evicted.push(hash);
      else taken.added.push([hash, tokens]);
    }
    return taken;
  }

  /** Everything held is to be told again. */
  startAnew(): void {
    this.#isAnew = true;
    this.#changes.clear();
    for (const [hash, { tokens }] of this.#entries) this.#changes.set(hash, tokens);
  }

  /** Throws when what hangs where is told differently from its two ends. */
  check(): void {
    if (this.#entries.size > this.#options.maxEntries) throw new Error('Held prefixes: more than the bound.');
    if (this.#closed.size > this.#options.maxClosed) throw new Error('Held prefixes: too many ended requests.');
    let count = 0;
    for (const [hash, entry] of this.#entries) {
      if (entry.blockIds.length === 0) throw new Error(`Held prefixes: ${hash} hangs on nothing.`);
      if (new Set(entry.blockIds).size !== entry.blockIds.length) throw new Error(`Held prefixes: ${hash} hangs on one block twice.`);
      count += entry.blockIds.length;
      for (const blockId of entry.blockIds) {
        if (!this.#hashesOn.get(blockId)?.includes(hash)) throw new Error(`Held prefixes: block ${blockId} does not carry ${hash}.`);
      }
    }
    for (const hashes of this.#hashesOn.values()) count -= hashes.length;
    if (count !== 0) throw new Error('Held prefixes: a block carries what is not held.');
  }

  /** Text blocks that end in the answer, as the next turn of the conversation will send it. */
  #answerBlocks(owner: Owner, lastBlockId: number): { hashes: string[]; needs: number[] } {
    const tokenIds = this.#options.pathTokenIds(lastBlockId).slice(owner.promptTokens);
    const chain = owner.chain.fork();
    const hashes = chain.push(answerHead(owner.kind));
    const needs = hashes.map(() => owner.promptTokens);
    for (const [index, tokenId] of tokenIds.entries()) {
      for (const hash of chain.push(owner.kind === 'tokens' ? tokenIdBytes([tokenId]) : this.#options.tokenBytes(tokenId, 'hidden'))) {
        hashes.push(hash);
        needs.push(owner.promptTokens + index + 1);
      }
    }
    return { hashes, needs };
  }

  #hang(hash: string, blockId: number, tokens: number): void {
    const entry = this.#entries.get(hash);
    if (entry === undefined) {
      this.#entries.set(hash, { tokens, blockIds: [blockId] });
      this.#changed(hash, tokens);
    } else {
      // Stored again: the youngest.
      this.#entries.delete(hash);
      this.#entries.set(hash, entry);
      if (entry.blockIds.includes(blockId)) return;
      entry.blockIds.push(blockId);
    }
    const hashes = this.#hashesOn.get(blockId);
    if (hashes === undefined) this.#hashesOn.set(blockId, [hash]);
    else hashes.push(hash);
  }

  #keepBound(): void {
    for (const [hash, { blockIds }] of this.#entries) {
      if (this.#entries.size <= this.#options.maxEntries) return;
      this.#entries.delete(hash);
      this.#changed(hash, undefined);
      for (const blockId of blockIds) {
        const hashes = this.#hashesOn.get(blockId)!;
        if (hashes.length === 1) this.#hashesOn.delete(blockId);
        else hashes.splice(hashes.indexOf(hash), 1);
      }
    }
  }

  #changed(hash: string, tokens: number | undefined): void {
    this.#changes.set(hash, tokens);
    // Nobody has taken them for long: what was evicted since need not be told one by one.
    if (this.#changes.size > this.#entries.size + 2 * this.#options.maxEntries) this.startAnew();
  }
}

const NO_BLOCKS = { hashes: [], needs: [] };
