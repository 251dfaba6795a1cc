/** ApiKey: genuine keys are read, forged and damaged ones refused, secrets rotate with an overlap, and names cannot be confused. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { KeyReader } from '../../gateway/api-key.ts';
import { TENANT_PATTERN } from '../../shared/admin-wire.ts';

const SECRET = 'a'.repeat(40);
const OTHER = 'b'.repeat(40);
const none = { developmentKey: undefined, adminKey: undefined, keySecret: undefined, previousKeySecret: undefined };
const reader = new KeyReader({ ...none, keySecret: SECRET });
const bearer = (key: string) => `Bearer ${key}`;
const refused = { code: 'invalid_api_key' };

describe('an issued key', () => {
  test('says whose it is, whatever hyphens the name has', async () => {
    for (const tenant of ['acme', 'a', 'acme-inc', 'a--b', `${'x'.repeat(31)}y`]) {
      const key = await reader.make(tenant, 'k1');
      expect(key.startsWith(`sk-sluice-${tenant}-k1-`)).toBe(true);
      expect(await reader.identify(bearer(key))).toEqual({ kind: 'key', caller: { tenant, keyId: 'k1' } });
    }
  });

  test('no two names have the same key, and each key has one reading', async () => {
    const tenant = fc.stringMatching(new RegExp(`^${TENANT_PATTERN}$`));
    const keyId = fc.stringMatching(/^[a-z0-9]{1,32}$/);
    await fc.assert(
      fc.asyncProperty(tenant, keyId, async (name, id) => {
        expect(await reader.identify(bearer(await reader.make(name, id)))).toEqual({ kind: 'key', caller: { tenant: name, keyId: id } });
      }),
      { numRuns: 50 },
    );
  });

  test('with any one character changed is refused', async () => {
    const key = await reader.make('acme', 'k1');
    for (let i = 0; i < key.length; i++) {
      for (const char of ['A', 'b', '-', '_', '9']) {
        if (key[i] === char) continue;
        await expect(reader.identify(bearer(key.slice(0, i) + char + key.slice(i + 1)))).rejects.toMatchObject(refused);
      }
    }
  });

  test('of another tenant, id or secret is refused', async () => {
    const mac = (await reader.make('acme', 'k1')).slice(-43);
    for (const forged of [`sk-sluice-acm-e-k1-${mac}`, `sk-sluice-acme-k2-${mac}`, `sk-sluice-other-k1-${mac}`]) {
      await expect(reader.identify(bearer(forged))).rejects.toMatchObject(refused);
    }
    const foreign = await new KeyReader({ ...none, keySecret: OTHER }).make('acme', 'k1');
    await expect(reader.identify(bearer(foreign))).rejects.toMatchObject(refused);
    await expect(new KeyReader(none).identify(bearer(await reader.make('acme', 'k1')))).rejects.toMatchObject(refused);
  });

  test('of the secret before is good until that one is taken away', async () => {
    const old = await reader.make('acme', 'k1');
    const rotated = new KeyReader({ ...none, keySecret: OTHER, previousKeySecret: SECRET });
    expect(await rotated.identify(bearer(old))).toMatchObject({ kind: 'key' });
    expect(await rotated.identify(bearer(await rotated.make('acme', 'k1')))).toMatchObject({ kind: 'key' });
    expect(await rotated.make('acme', 'k1')).not.toBe(old);
    await expect(new KeyReader({ ...none, keySecret: OTHER }).identify(bearer(old))).rejects.toMatchObject(refused);
  });
});

test.each([
  undefined,
  '',
  'Bearer',
  'Bearer  ',
  'sk-sluice-abcdefgh',
  'Bearer sk-sluice-abcdefghsk-sluice-abcdefgh',
  'Bearer sk-sluice-abcdefg',
  'Bearer a b',
  'Basic sk-sluice-abcdefgh',
  `Bearer ${'x'.repeat(100_000)}`,
  'Bearer undefined',
])('no key at all: %.40s', async header => {
  for (const developmentKey of ['sk-sluice-abcdefgh', undefined]) {
    await expect(new KeyReader({ ...none, developmentKey }).identify(header)).rejects.toMatchObject(refused);
  }
});

test('the keys in the bindings are the operator’s; only one of them is a tenant’s too', async () => {
  const both = new KeyReader({ ...none, developmentKey: 'sk-sluice-abcdefgh', adminKey: 'r'.repeat(32) });
  expect(await both.identify('Bearer sk-sluice-abcdefgh')).toEqual({ kind: 'operator', caller: { tenant: 'dev', keyId: 'development' } });
  expect(await both.identify(`bearer  ${'r'.repeat(32)} `)).toEqual({ kind: 'operator', caller: undefined });
});
