/** TenantStore: an account that is forgotten at any moment and told again stands where it stood. */
import { DatabaseSync } from 'node:sqlite';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Account } from '../../../gateway/tenant/account.ts';
import { type Sql, TenantStore } from '../../../gateway/tenant/tenant-store.ts';

const NOON = Date.UTC(2026, 0, 15, 12);

function memory(): { store: TenantStore; rowCount(table: string): number } {
  const database = new DatabaseSync(':memory:');
  const sql: Sql = {
    exec(query, ...bindings) {
      const rows = database.prepare(query).all(...bindings);
      return { toArray: () => rows as Record<string, unknown>[] };
    },
  };
  return {
    store: new TenantStore(sql),
    rowCount: table => Number(database.prepare(`SELECT COUNT(*) AS count FROM ${table}`).get()!.count),
  };
}

function newAccount(): Account {
  return new Account({
    limits: { requestsPerMinute: 20, tokensPerMinute: 2_000, concurrentRequests: 8, tokensPerDay: 20_000 },
    limitsOfKey: id => (id === 'a' ? { tokensPerMinute: 900 } : {}),
    leaseMs: 60_000,
    defaultMaxTokens: 100,
  });
}

test('eviction at any moment changes nothing', () => {
  const step = fc.record({
    pauseMs: fc.oneof(fc.nat(3_000), fc.nat(65_000), fc.constant(13 * 60 * 60_000)),
    act: fc.constantFrom('admit', 'admit', 'settle', 'refuse', 'extend', 'prune'),
    keyId: fc.constantFrom('a', 'b'),
    tokens: fc.integer({ min: 1, max: 400 }),
    pick: fc.nat(),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), steps => {
      const { store, rowCount } = memory();
      let account = newAccount();
      const open: string[] = [];
      let now = NOON;
      for (const [index, { pauseMs, act, keyId, tokens, pick }] of steps.entries()) {
        now += pauseMs;
        const id = open[pick % Math.max(1, open.length)];
        if (act === 'admit') {
          const admission = account.admit(
            { id: `r${index}`, keyId, promptTokens: tokens, maxTokens: tokens, minTokens: 0, choiceCount: 1 },
            now,
          );
          if (admission.outcome === 'admitted') {
            store.putLease(admission.lease);
            open.push(admission.lease.id);
          }
        } else if (act === 'extend' && id !== undefined) {
          const extension = account.extend(id, tokens + 50, now);
          if (extension?.outcome === 'extended') store.putLease(extension.lease);
        } else if (act === 'prune') {
          store.prune(now);
        } else if (id !== undefined) {
          open.splice(open.indexOf(id), 1);
          const used = act === 'refuse' ? undefined : { promptTokens: tokens, cachedTokens: 0, completionTokens: 3 };
          store.end(account.settle(id, used, now)!, 'm', now);
        }
        // As much as there is of it, one step's or many steps' worth.
        if (pick % 3 > 0) continue;
        store.flush();
        const again = newAccount();
        store.replay(again, now);
        again.check();
        for (const key of ['a', 'b']) expect(again.standing(key, now)).toEqual(account.standing(key, now));
        expect(again.dayTokens(now)).toBe(account.dayTokens(now));
        expect(again.openCount).toBe(account.openCount);
        // From here on it is the one that was told.
        account = again;
      }
      store.flush();
      expect(store.isWritten).toBe(true);
      expect(rowCount('lease')).toBe(open.length);
      store.prune(now + 120_000);
      expect(rowCount('spent')).toBe(0);
    }),
    { numRuns: 60 },
  );
});

test('keys and limits are kept as they were', () => {
  const { store } = memory();
  const key = {
    id: 'k',
    name: 'n',
    scopes: ['infer' as const],
    limits: { tokensPerDay: 5 },
    createdAt: 1,
    expiresAt: undefined,
    revokedAt: 7,
  };
  store.putKey(key);
  store.putKey({ ...key, id: 'other', expiresAt: 9, revokedAt: undefined });
  store.setLimits({ requestsPerMinute: 3 });
  expect(store.keys()).toEqual([key, { ...key, id: 'other', expiresAt: 9, revokedAt: undefined }]);
  expect(store.limits()).toEqual({ requestsPerMinute: 3 });
  store.forgetKey('k');
  expect(store.keys().map(({ id }) => id)).toEqual(['other']);
});
