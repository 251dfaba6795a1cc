/** What the batcher says it holds, against what the KV store really holds. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { HeldPrefixes, type PrefixChanges } from '../../batcher/held-prefixes.ts';
import { MIXED } from '../../batcher/kv/block-origin.ts';
import { KvCache } from '../../batcher/kv/kv-cache.ts';
import type { Prompt } from '../../shared/job.ts';
import { prefixHashes } from '../../shared/prefix.ts';
import { makeJob, Rig } from './rig.ts';

const BLOCK_TOKENS = 16;
/** Of a token prompt: the kind takes a byte, each token four. */
const TOKENS_OF_BLOCK = 64;

class Store {
  changedCount = 0;
  readonly held: HeldPrefixes;
  readonly kv: KvCache;
  #nextId = 0;

  constructor({ blocks = 1_000, maxEntries = 1_000, maxClosed = 4 } = {}) {
    this.held = new HeldPrefixes({
      blockTokens: BLOCK_TOKENS,
      maxEntries,
      maxClosed,
      tokenBytes: id => Uint8Array.of(97 + (id % 26)),
      pathTokenIds: blockId => this.kv.pathTokenIds(blockId),
      onChanged: () => {
        this.changedCount += 1;
      },
    });
    this.kv = new KvCache({ blockTokens: BLOCK_TOKENS, budgetBlocks: blocks, storeBlocks: blocks, rowCount: 1 }, this.held);
  }

  /** A request comes, is computed up to `tokenCount`, and ends. */
  serve(tokenIds: number[], { tenant = 'acme', promptTokens = tokenIds.length, tokenCount = tokenIds.length } = {}): void {
    const owner = `request-${this.#nextId++}`;
    const promptTokenIds = tokenIds.slice(0, promptTokens);
    this.held.open(owner, { tenant, prompt: { kind: 'tokens', tokenIds: promptTokenIds }, promptTokenIds });
    this.held.close(owner);
    this.save(owner, tokenIds, { tenant, tokenCount });
  }

  save(owner: string, tokenIds: number[], { tenant = 'acme', tokenCount = tokenIds.length } = {}): void {
    const space = this.kv.space(tenant, tokenIds);
    this.kv.save({ owner, space, tokenIds, row: 0, tokenCount, prefilledTokens: 0, tailOrigin: MIXED }, []);
    this.held.check();
  }

  /** Tokens at the front of these that the store has. */
  storedTokens(tokenIds: readonly number[], tenant = 'acme'): number {
    const space = this.kv.space(tenant, tokenIds);
    return this.kv.match({ space, tokenIds, blockLimit: 1_000, demand: 'any' }).blockIds.length * BLOCK_TOKENS;
  }

  heldBlocks(tokenIds: number[], tenant = 'acme'): boolean[] {
    return hashesOf(tokenIds, tenant).map(hash => this.held.has(hash));
  }
}

const hashesOf = (tokenIds: number[], tenant = 'acme') => prefixHashes({ kind: 'tokens', tokenIds }, tenant);
const tokens = (count: number, first = 0) => Array.from({ length: count }, (_, i) => first + i);
/** What a follower knows after these changes. */
function follow(known: Map<string, number>, { isAnew, added, evicted }: PrefixChanges): void {
  if (isAnew) known.clear();
  for (const [hash, saved] of added) known.set(hash, saved);
  for (const hash of evicted) known.delete(hash);
}

describe('a stored path', () => {
  it('holds the text blocks that its whole KV blocks cover', () => {
    const store = new Store();
    store.serve(tokens(250), { tokenCount: 140 });
    // 128 tokens are stored: two text blocks of 64.
    expect(store.heldBlocks(tokens(250))).toEqual([true, true, false]);
    expect(store.heldBlocks(tokens(250), 'other')).toEqual([false, false, false]);
    const { isAnew, added, evicted } = store.held.takeChanges(100);
    expect({ isAnew, evicted }).toEqual({ isAnew: true, evicted: [] });
    // A prompt that differs right after the block shares whole KV blocks, and not the token that the text block ends in.
    expect(new Map(added)).toEqual(
      new Map(hashesOf(tokens(128)).map((hash, block) => [hash, (block + 1) * TOKENS_OF_BLOCK - BLOCK_TOKENS])),
    );
  });

  it('grows with each save, and says only what is new', () => {
    const store = new Store();
    store.held.open('r', { tenant: 'acme', prompt: { kind: 'tokens', tokenIds: tokens(300) }, promptTokenIds: tokens(300) });
    store.held.takeChanges(100);
    const news = [64, 100, 192, 192, 300].map(tokenCount => {
      store.save('r', tokens(300), { tokenCount });
      return store.held.takeChanges(100).added.length;
    });
    expect(news).toEqual([1, 0, 2, 0, 1]);
    expect(store.held.hasChanges).toBe(false);
  });

  it('holds no text block that ends within a KV block which is not stored', () => {
    const store = new Store();
    // Two tags and 254 letters, behind ten letters of markup: 264 tokens, sixteen KV blocks and a half.
    const prompt: Prompt = { kind: 'chat', messages: [{ role: 'user', content: 'abcdefgh'.repeat(50) }] };
    const promptTokenIds = [...tokens(10, 5), ...Array.from({ length: 400 }, (_, i) => i % 8)];
    const [hash] = prefixHashes(prompt, 'acme');
    store.held.open('r', { tenant: 'acme', prompt, promptTokenIds });
    store.save('r', promptTokenIds, { tokenCount: 256 });
    expect(store.held.has(hash!)).toBe(false);
    store.save('r', promptTokenIds, { tokenCount: 272 });
    expect(store.held.takeChanges(10).added).toEqual([[hash, 256]]);
  });

  it('of nobody who is known holds nothing', () => {
    const store = new Store();
    store.save('stranger', tokens(128));
    expect(store.held.size).toBe(0);
  });

  it('is remembered for the last requests that ended, and no more', () => {
    const store = new Store({ maxClosed: 2 });
    for (const owner of ['a', 'b', 'c']) {
      store.held.open(owner, { tenant: owner, prompt: { kind: 'tokens', tokenIds: tokens(64) }, promptTokenIds: tokens(64) });
      store.held.close(owner);
    }
    store.held.close('never opened');
    for (const tenant of ['a', 'b', 'c']) store.save(tenant, tokens(64), { tenant });
    expect(['a', 'b', 'c'].map(tenant => store.heldBlocks(tokens(64), tenant)[0])).toEqual([false, true, true]);
  });

  it('holds the answer too, as the next turn will send it', () => {
    const store = new Store();
    store.serve(tokens(320), { promptTokens: 100 });
    expect(store.heldBlocks(tokens(320))).toEqual([true, true, true, true, true].slice(0, hashesOf(tokens(320)).length));
    // Another answer to the same prompt.
    store.serve([...tokens(100), ...tokens(220, 1_000)], { promptTokens: 100 });
    expect(store.heldBlocks([...tokens(100), ...tokens(220, 1_000)])).not.toContain(false);
  });

  it('holds the answer of a conversation as its next message', () => {
    const store = new Store();
    const prompt: Prompt = { kind: 'chat', messages: [{ role: 'user', content: 'abcdefgh'.repeat(50) }] };
    // A token a letter, behind ten of markup.
    const promptTokenIds = [...tokens(10, 5), ...Array.from({ length: 400 }, (_, i) => i % 8)];
    const answer = Array.from({ length: 600 }, (_, i) => (i * 7) % 26);
    store.held.open('r', { tenant: 'acme', prompt, promptTokenIds });
    store.save('r', [...promptTokenIds, ...answer]);
    const said = String.fromCharCode(...answer.map(id => 97 + id));
    const next: Prompt = {
      kind: 'chat',
      messages: [...prompt.messages, { role: 'assistant', content: said }, { role: 'user', content: 'and then?' }],
    };
    const hashes = prefixHashes(next, 'acme');
    expect(hashes).toHaveLength(3);
    expect(hashes.map(hash => store.held.has(hash))).toEqual([true, true, true]);
  });
});

describe('an eviction', () => {
  it('takes the text blocks that lose a KV block, from the end', () => {
    const store = new Store({ blocks: 12 });
    store.serve(tokens(192));
    expect(store.heldBlocks(tokens(192))).toEqual([true, true, true]);
    store.kv.growRow(0, 1);
    expect(store.heldBlocks(tokens(192))).toEqual([true, true, false]);
    store.kv.growRow(0, 5);
    expect(store.heldBlocks(tokens(192))).toEqual([true, false, false]);
    store.held.check();
  });

  it('leaves a text block that another path still covers', () => {
    const store = new Store({ blocks: 8 });
    // Two prompts share 63 tokens: the first text block ends in KV blocks of their own.
    const a = [...tokens(63), 500];
    const b = [...tokens(63), 600];
    // 255 bytes of ids: the last byte of the block is the last token's lowest.
    expect(hashesOf(a)).not.toEqual(hashesOf([...tokens(63), 501]));
    const c = [...tokens(63), 500 + 256 ** 3];
    expect(hashesOf(c)).toEqual(hashesOf(a));
    store.serve(a);
    store.serve(c);
    store.serve(b);
    store.kv.growRow(0, 3);
    expect(store.storedTokens(a)).toBe(48);
    expect(store.storedTokens(c)).toBe(64);
    expect(store.heldBlocks(a)).toEqual([true]);
    store.kv.growRow(0, 4);
    expect(store.heldBlocks(a)).toEqual([false]);
  });
});

describe('the bound', () => {
  it('drops what was stored least recently, the end of a path first', () => {
    const store = new Store({ maxEntries: 5 });
    store.serve(tokens(256));
    store.serve(tokens(128, 1_000));
    expect(store.heldBlocks(tokens(256))).toEqual([true, true, true, false]);
    expect(store.heldBlocks(tokens(128, 1_000))).toEqual([true, true]);
    store.serve(tokens(256));
    expect(store.heldBlocks(tokens(256))).toEqual([true, true, true, true]);
    expect(store.heldBlocks(tokens(128, 1_000))).toEqual([true, false]);
  });

  it('holds for changes that nobody takes', () => {
    const store = new Store({ blocks: 8, maxEntries: 4 });
    const known = new Map<string, number>();
    follow(known, store.held.takeChanges(100));
    for (let i = 0; i < 200; i++) store.serve(tokens(128, i * 1_000));
    const changes = store.held.takeChanges(1_000);
    expect(changes.added.length + changes.evicted.length).toBeLessThanOrEqual(12);
    follow(known, changes);
    expect(new Set(known.keys())).toEqual(new Set(hashesOf(tokens(128, 199_000))));
  });
});

it('changes are taken a few at a time, and told anew when asked', () => {
  const store = new Store();
  store.serve(tokens(320));
  const known = new Map<string, number>();
  const taken: PrefixChanges[] = [];
  while (store.held.hasChanges) taken.push(store.held.takeChanges(2));
  for (const changes of taken) follow(known, changes);
  expect(taken.map(({ isAnew, added }) => [isAnew, added.length])).toEqual([
    [true, 2],
    [false, 2],
    [false, 1],
  ]);
  store.held.startAnew();
  const again = store.held.takeChanges(100);
  expect(again.isAnew).toBe(true);
  expect(new Map(again.added)).toEqual(known);
});

it('always says what the store holds, whatever is stored and evicted', () => {
  const request = fc.record({
    // Few stems and branches, so that paths meet and part inside text blocks and KV blocks.
    stem: fc.nat(1),
    branch: fc.nat(2),
    branchAt: fc.constantFrom(0, 16, 50, 63, 64, 65, 130, 200),
    length: fc.integer({ min: 1, max: 280 }),
    promptShare: fc.constantFrom(0.3, 1),
    tenant: fc.constantFrom('a', 'b'),
    squeeze: fc.nat(40),
  });
  fc.assert(
    fc.property(
      fc.array(request, { maxLength: 40 }),
      fc.integer({ min: 5, max: 60 }),
      fc.integer({ min: 1, max: 8 }),
      (requests, blocks, limit) => {
        const store = new Store({ blocks });
        const known = new Map<string, number>();
        const served: { tokenIds: number[]; tenant: string }[] = [];
        for (const { stem, branch, branchAt, length, promptShare, tenant, squeeze } of requests) {
          const tokenIds = Array.from({ length }, (_, i) => 1 + stem * 1_000 + i + (i >= branchAt ? branch * 10_000 : 0));
          store.serve(tokenIds, { tenant, promptTokens: Math.max(1, Math.floor(length * promptShare)) });
          served.push({ tokenIds, tenant });
          if (squeeze < blocks && squeeze % 4 === 0) {
            store.kv.growRow(0, squeeze);
            store.kv.freeRow(0);
          }
          store.held.check();
          follow(known, store.held.takeChanges(limit));
        }
        const expected = new Set<string>();
        for (const { tokenIds, tenant } of served) {
          const stored = store.storedTokens(tokenIds, tenant);
          hashesOf(tokenIds, tenant).forEach((hash, block) => {
            if ((block + 1) * TOKENS_OF_BLOCK <= stored) expected.add(hash);
          });
        }
        expect(store.held.size).toBe(expected.size);
        for (const hash of expected) expect(store.held.has(hash)).toBe(true);
        while (store.held.hasChanges) follow(known, store.held.takeChanges(limit));
        expect(new Set(known.keys())).toEqual(expected);
        // What is said to be saved is there to be found by a prompt of the same text.
        for (const { tokenIds, tenant } of served) {
          for (const hash of hashesOf(tokenIds, tenant)) {
            const saved = known.get(hash);
            if (saved !== undefined) expect(store.storedTokens(tokenIds, tenant)).toBeGreaterThanOrEqual(saved);
          }
        }
      },
    ),
    { numRuns: 300 },
  );
});

describe('in the batcher', () => {
  it('a finished request’s prompt and answer are held, and the next turn finds them', async () => {
    const rig = new Rig({ shape: { contextTokens: 512 } });
    try {
      const tokenIds = Array.from({ length: 100 }, (_, i) => 1 + (i % 20));
      await rig.submit(makeJob({ id: 'turn-1', prompt: { kind: 'tokens', tokenIds }, stopping: { maxTokens: 120, ignoreEos: true } }));
      await rig.settled();
      const answer = rig.eventsOf('turn-1').flatMap(event => (event.type === 'delta' ? event.tokenIds : []));
      const next: Prompt = { kind: 'tokens', tokenIds: [...tokenIds, ...answer, 3, 4, 5] };
      // Its row is given back with the next step.
      await rig.submit(makeJob({ prompt: next, stopping: { maxTokens: 2, ignoreEos: true } }));
      await rig.settled();
      const hashes = prefixHashes(next, 'acme');
      expect(hashes).toHaveLength(3);
      expect(hashes.map(hash => rig.held.has(hash))).toEqual([true, true, true]);
      expect(prefixHashes(next, 'other').map(hash => rig.held.has(hash))).toEqual([false, false, false]);
      expect(rig.errors).toEqual([]);
    } finally {
      await rig.close();
    }
  });

  it('what many requests leave behind in a small store stays consistent at every step', async () => {
    const rig = new Rig({ shape: { contextTokens: 256 }, budgetBlocks: 40, maxRunning: 4, prefixEntries: 6 });
    try {
      const jobs = Array.from({ length: 40 }, (_, i) =>
        makeJob({
          tenant: i % 3 === 0 ? 'a' : 'b',
          prompt: { kind: 'tokens', tokenIds: Array.from({ length: 20 + ((i * 37) % 150) }, (_, at) => 1 + ((at * (1 + (i % 2))) % 20)) },
          stopping: { maxTokens: 1 + ((i * 13) % 60), ignoreEos: true },
          choiceCount: 1 + (i % 2),
        }),
      );
      await Promise.all(jobs.map(job => rig.submit(job)));
      await rig.settled();
      expect(rig.held.size).toBeGreaterThan(0);
      expect(rig.errors).toEqual([]);
    } finally {
      await rig.close();
    }
  });
});
