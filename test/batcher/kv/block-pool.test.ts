import { expect, test } from 'vitest';
import { BlockPool } from '../../../batcher/kv/block-pool.ts';
import { random } from '../random.ts';

test('hands out every id once and takes it back', () => {
  const pool = new BlockPool(3);
  const ids = [pool.acquire(), pool.acquire(), pool.acquire()];
  expect(new Set(ids)).toEqual(new Set([0, 1, 2]));
  expect(pool.acquire()).toBeUndefined();
  expect(pool.freeCount).toBe(0);
  pool.release(1);
  expect(pool.acquire()).toBe(1);
});

test('an id is free only when its last reference is gone', () => {
  const pool = new BlockPool(1);
  const id = pool.acquire()!;
  expect(pool.retain(id)).toBe(2);
  expect(pool.release(id)).toBe(1);
  expect(pool.acquire()).toBeUndefined();
  expect(pool.release(id)).toBe(0);
  expect(pool.acquire()).toBe(id);
});

test('refuses what would corrupt it', () => {
  const pool = new BlockPool(2);
  expect(() => pool.release(0)).toThrow('free');
  expect(() => pool.retain(1)).toThrow('free');
  expect(() => new BlockPool(-1)).toThrow(RangeError);
  expect(() => new BlockPool(1.5)).toThrow(RangeError);
});

test('random operations keep the counts', () => {
  const pick = random(7);
  const pool = new BlockPool(50);
  const held: number[] = [];
  for (let i = 0; i < 10_000; i += 1) {
    const kind = pick(3);
    const at = pick(Math.max(1, held.length));
    if (kind === 0) {
      const id = pool.acquire();
      if (id === undefined) expect(new Set(held).size).toBe(50);
      else {
        expect(held).not.toContain(id);
        held.push(id);
      }
    } else if (kind === 1 && held.length > 0) {
      pool.retain(held[at]!);
      held.push(held[at]!);
    } else if (held.length > 0) {
      pool.release(held[at]!);
      held.splice(at, 1);
    }
    expect(pool.usedCount).toBe(new Set(held).size);
    if (i % 100 === 0) pool.check();
  }
});
