import { describe, expect, test } from 'vitest';
import type { BlockCopy } from '../../../batcher/engine/engine.ts';
import { MIXED, PREFILLED } from '../../../batcher/kv/block-origin.ts';
import { KvCache, type StoreListener } from '../../../batcher/kv/kv-cache.ts';
import { random } from '../random.ts';

const BLOCK = 4;

function cache(options: { budgetBlocks?: number; storeBlocks?: number; listener?: StoreListener } = {}): KvCache {
  const budgetBlocks = options.budgetBlocks ?? 16;
  return new KvCache({ blockTokens: BLOCK, budgetBlocks, storeBlocks: options.storeBlocks ?? budgetBlocks, rowCount: 4 }, options.listener);
}

function tokens(count: number, first = 0): number[] {
  return Array.from({ length: count }, (_, i) => first + i);
}

function save(
  kv: KvCache,
  tokenIds: number[],
  more: { tenant?: string; prefilledTokens?: number; tailOrigin?: number; owner?: string } = {},
): BlockCopy[] {
  const saves: BlockCopy[] = [];
  kv.save(
    {
      owner: more.owner ?? 'request',
      space: kv.space(more.tenant ?? 'a', tokenIds),
      tokenIds,
      row: 0,
      tokenCount: tokenIds.length,
      prefilledTokens: more.prefilledTokens ?? tokenIds.length,
      tailOrigin: more.tailOrigin ?? MIXED,
    },
    saves,
  );
  kv.check();
  return saves;
}

function found(kv: KvCache, tokenIds: number[], more: { tenant?: string; promptTokens?: number; blockLimit?: number } = {}): number {
  const demand = more.promptTokens === undefined ? 'any' : { promptTokens: more.promptTokens };
  const space = kv.space(more.tenant ?? 'a', tokenIds);
  return kv.match({ space, tokenIds, blockLimit: more.blockLimit ?? 1_000, demand }).blockIds.length;
}

describe('saving and finding', () => {
  test('stores whole blocks only and finds the longest path', () => {
    const kv = cache();
    expect(save(kv, tokens(11))).toEqual([{ row: 0, firstBlock: 0, blockIds: [0, 1] }]);
    expect(found(kv, tokens(11))).toBe(2);
    expect(found(kv, tokens(7))).toBe(1);
    expect(found(kv, [...tokens(4), 99, 99, 99, 99])).toBe(1);
    expect(found(kv, tokens(8, 1))).toBe(0);
    expect(found(kv, tokens(11), { blockLimit: 1 })).toBe(1);
  });

  test('a block that is stored is not stored again', () => {
    const kv = cache();
    save(kv, tokens(8));
    expect(save(kv, tokens(12))).toEqual([{ row: 0, firstBlock: 2, blockIds: [2] }]);
    expect(save(kv, tokens(12))).toEqual([]);
    expect(kv.usage().evictableBlocks).toBe(3);
  });

  test('the same tokens after another beginning are another block', () => {
    const kv = cache();
    save(kv, [...tokens(4), ...tokens(4, 50)]);
    expect(found(kv, [...tokens(4, 9), ...tokens(4, 50)])).toBe(0);
    expect(found(kv, tokens(4, 50))).toBe(0);
  });
});

describe('namespaces', () => {
  test('a tenant never finds what another stored', () => {
    const kv = cache();
    save(kv, tokens(12), { tenant: 'a' });
    expect(found(kv, tokens(12), { tenant: 'b' })).toBe(0);
    expect(save(kv, tokens(12), { tenant: 'b' })).toHaveLength(1);
    expect(kv.usage().evictableBlocks).toBe(6);
  });

  test('an approved prefix is shared, what follows it is not', () => {
    const kv = cache();
    kv.approvePublicPrefix(tokens(9));
    save(kv, tokens(16), { tenant: 'a' });
    expect(found(kv, tokens(16), { tenant: 'b' })).toBe(2);
    expect(found(kv, tokens(16), { tenant: 'a' })).toBe(4);
    save(kv, tokens(16), { tenant: 'b' });
    expect(found(kv, tokens(16), { tenant: 'b' })).toBe(4);
    expect(kv.usage().evictableBlocks).toBe(6);
  });

  test('a prompt that only begins like an approved prefix is not public', () => {
    const kv = cache();
    kv.approvePublicPrefix(tokens(8));
    save(kv, tokens(4), { tenant: 'a' });
    expect(found(kv, tokens(4), { tenant: 'b' })).toBe(0);
  });

  test('a namespace that lost its last block is forgotten and opened anew', () => {
    const kv = cache({ budgetBlocks: 2 });
    for (const tenant of ['a', 'b', 'a', 'c', 'a']) {
      save(kv, tokens(8), { tenant });
      expect(found(kv, tokens(8), { tenant })).toBe(2);
    }
  });
});

describe('origin', () => {
  test('a reproducible sequence uses prefilled blocks and its own kind of decoded ones', () => {
    const kv = cache();
    save(kv, tokens(16), { prefilledTokens: 6, tailOrigin: 6 });
    expect(found(kv, tokens(16))).toBe(4);
    expect(found(kv, tokens(16), { promptTokens: 6 })).toBe(4);
    expect(found(kv, tokens(16), { promptTokens: 16 })).toBe(1);
    expect(found(kv, tokens(16), { promptTokens: 8 })).toBe(1);
  });

  test('prefilled blocks past its prompt are not what it would compute', () => {
    const kv = cache();
    save(kv, tokens(16));
    expect(found(kv, tokens(16), { promptTokens: 9 })).toBe(2);
  });

  test('a prefilled row takes the place of a decoded block', () => {
    const kv = cache();
    save(kv, tokens(12), { prefilledTokens: 4 });
    expect(found(kv, tokens(12), { promptTokens: 12 })).toBe(1);
    expect(save(kv, tokens(12))).toEqual([{ row: 0, firstBlock: 1, blockIds: [1, 2] }]);
    expect(found(kv, tokens(12), { promptTokens: 12 })).toBe(3);
    expect(save(kv, tokens(12), { prefilledTokens: 4 })).toEqual([]);
    expect(PREFILLED).toBeGreaterThan(1e9);
  });

  test('a handle knows how much of it is prefilled', () => {
    const kv = cache();
    save(kv, tokens(12), { prefilledTokens: 8 });
    const handle = kv.match({ space: kv.space('a', tokens(12)), tokenIds: tokens(12), blockLimit: 9, demand: 'any' });
    expect(handle.prefilledTokens).toBe(8);
    expect(kv.shorten(handle, 1)).toEqual({ blockIds: [0], prefilledTokens: 4 });
  });
});

describe('the budget', () => {
  test('rows evict the least recently used, leaves first', () => {
    const kv = cache({ budgetBlocks: 6 });
    save(kv, tokens(12));
    save(kv, tokens(12, 100));
    expect(kv.growRow(1, 2)).toBe(true);
    expect(found(kv, tokens(12))).toBe(1);
    expect(found(kv, tokens(12, 100))).toBe(3);
    expect(kv.takeEvicted().sort()).toEqual([1, 2]);
    expect(kv.takeEvicted()).toEqual([]);
    kv.check();
  });

  test('a row that does not fit changes nothing', () => {
    const kv = cache({ budgetBlocks: 4 });
    save(kv, tokens(8));
    expect(kv.growRow(0, 5)).toBe(false);
    expect(found(kv, tokens(8))).toBe(2);
    expect(kv.growRow(0, 4)).toBe(true);
    expect(kv.growRow(1, 1)).toBe(false);
    expect(kv.growRow(0, 3)).toBe(true);
    expect(kv.heldBlocks(0)).toBe(4);
    kv.freeRow(0);
    expect(kv.freeBlocks).toBe(4);
  });

  test('a locked hit is not evicted, an unlocked one is', () => {
    const kv = cache({ budgetBlocks: 4 });
    save(kv, tokens(8));
    const handle = kv.match({ space: kv.space('a', tokens(8)), tokenIds: tokens(8), blockLimit: 9, demand: 'any' });
    kv.lock(handle);
    expect(kv.usage()).toMatchObject({ protectedBlocks: 2, evictableBlocks: 0 });
    expect(kv.roomBlocks).toBe(2);
    expect(kv.growRow(0, 3)).toBe(false);
    save(kv, tokens(16, 70));
    expect(found(kv, tokens(8))).toBe(2);
    kv.unlock(handle);
    expect(kv.growRow(0, 4)).toBe(true);
    kv.check();
  });

  test('saving stops where nothing can be evicted and keeps its own path', () => {
    const kv = cache({ budgetBlocks: 3 });
    expect(save(kv, tokens(20))).toEqual([{ row: 0, firstBlock: 0, blockIds: [0, 1, 2] }]);
    expect(found(kv, tokens(20))).toBe(3);
  });

  test('a store smaller than the budget evicts for itself', () => {
    const kv = cache({ budgetBlocks: 10, storeBlocks: 2 });
    save(kv, tokens(8));
    save(kv, tokens(4, 50));
    expect(kv.usage()).toMatchObject({ evictableBlocks: 2, freeBlocks: 8 });
    expect(found(kv, tokens(4, 50))).toBe(1);
  });

  test('an evicted id that holds something new is not released', () => {
    const kv = cache({ budgetBlocks: 2 });
    save(kv, tokens(8));
    save(kv, tokens(8, 50));
    expect(kv.takeEvicted()).toEqual([]);
  });

  test('moving a row moves its blocks', () => {
    const kv = cache();
    kv.growRow(2, 3);
    kv.moveRow(2, 0);
    expect([kv.heldBlocks(0), kv.heldBlocks(2)]).toEqual([3, 0]);
    kv.growRow(1, 1);
    expect(() => kv.moveRow(0, 1)).toThrow('held');
    kv.check();
  });

  test('refuses impossible shapes', () => {
    expect(() => cache({ budgetBlocks: 0 })).toThrow('budgetBlocks');
    expect(() => new KvCache({ blockTokens: 1, budgetBlocks: 1, storeBlocks: 1, rowCount: 1 })).toThrow('blockTokens');
  });
});

test('the listener hears whole paths and evictions', () => {
  const heard: string[] = [];
  const kv = cache({
    budgetBlocks: 3,
    listener: {
      stored: path => heard.push(`${path.owner} ${path.space.tenant} ${path.blockIds.join()}`),
      evicted: id => heard.push(`-${id}`),
    },
  });
  save(kv, tokens(8), { owner: 'x' });
  save(kv, tokens(12), { owner: 'y' });
  expect(heard).toEqual(['x a 0,1', 'y a 0,1,2']);
  expect(kv.pathTokenIds(2)).toEqual(tokens(12));
  kv.growRow(0, 1);
  expect(heard.at(-1)).toBe('-2');
  expect(() => kv.pathTokenIds(2)).toThrow('not stored');
});

test('random operations agree with a plain model of the store', () => {
  const pick = random(11);
  const evictions: number[] = [];
  const kv = cache({ budgetBlocks: 24, listener: { stored: () => undefined, evicted: id => evictions.push(id) } });
  /** What is stored, by tenant and tokens; the age of a block is when its last lock went, deepest first. */
  const model = new Map<string, { id: number; locks: number; age: number }>();
  const locked: { handle: ReturnType<KvCache['match']>; keys: string[] }[] = [];
  let clock = 0;
  const keysOf = (tenant: string, tokenIds: number[]): string[] =>
    Array.from({ length: Math.floor(tokenIds.length / BLOCK) }, (_, i) => `${tenant}:${tokenIds.slice(0, (i + 1) * BLOCK).join()}`);
  const touch = (keys: string[]): void => {
    for (const key of [...keys].reverse()) {
      const node = model.get(key)!;
      if (node.locks === 0) node.age = ++clock;
    }
  };
  const forget = (): void => {
    for (const id of evictions.splice(0)) {
      const unlocked = [...model].filter(([, node]) => node.locks === 0).sort(([, a], [, b]) => a.age - b.age);
      const [key, node] = unlocked[0]!;
      expect(node.id).toBe(id);
      expect([...model.keys()].some(other => other.startsWith(`${key},`))).toBe(false);
      model.delete(key);
    }
  };
  for (let i = 0; i < 10_000; i += 1) {
    const tenant = 'ab'[pick(2)]!;
    const tokenIds = Array.from({ length: pick(30) }, () => pick(2));
    const keys = keysOf(tenant, tokenIds);
    const kind = pick(5);
    if (kind < 2) {
      const present = keys.filter(key => model.has(key));
      // The path is locked while it is saved.
      for (const key of present) model.get(key)!.locks += 1;
      const saves = save(kv, tokenIds, { tenant });
      forget();
      for (const key of present) model.get(key)!.locks -= 1;
      const ids = saves.flatMap(copy => copy.blockIds.map((id, at) => ({ id, block: copy.firstBlock + at })));
      for (const { id, block } of ids) model.set(keys[block]!, { id, locks: 0, age: 0 });
      touch(keys.filter(key => model.has(key)));
    } else if (kind === 2) {
      const handle = kv.match({ space: kv.space(tenant, tokenIds), tokenIds, blockLimit: 99, demand: 'any' });
      const expected: number[] = [];
      for (const key of keys) {
        const node = model.get(key);
        if (node === undefined) break;
        expected.push(node.id);
      }
      expect(handle.blockIds).toEqual(expected);
      kv.lock(handle);
      const taken = keys.slice(0, expected.length);
      for (const key of taken) model.get(key)!.locks += 1;
      locked.push({ handle, keys: taken });
    } else if (kind === 3 && locked.length > 0) {
      const { handle, keys: taken } = locked.splice(pick(locked.length), 1)[0]!;
      kv.unlock(handle);
      for (const key of taken) model.get(key)!.locks -= 1;
      touch(taken);
    } else {
      const row = pick(4);
      if (pick(2) === 0) kv.freeRow(row);
      else kv.growRow(row, pick(8));
      forget();
    }
    kv.check();
    expect(kv.usage().evictableBlocks).toBe([...model.values()].filter(node => node.locks === 0).length);
    expect(kv.usage().protectedBlocks).toBe([...model.values()].filter(node => node.locks > 0).length);
  }
});
