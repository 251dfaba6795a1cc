/** `npx sluice`'s program against a running gateway: what it prints, what it refuses, and whom it sends which key. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { KeyOut, ListOut, UsageOut } from '../../shared/admin-wire.ts';
import { freePort } from '../free-port.ts';
import { eventually, type Stack, scripted, startStack } from '../gateway/stack.ts';

const PROGRAM = join(import.meta.dirname, '..', '..', 'scripts', 'sluice.mjs');
const OPERATOR = 'operator-key-that-is-long-enough-0123';

let stack: Stack;
let folder: string;
beforeAll(async () => {
  stack = await startStack({ bindings: { SLUICE_ADMIN_KEY: OPERATOR } });
  // As npm start leaves it.
  folder = await mkdtemp(join(tmpdir(), 'sluice-cli-'));
  await writeFile(join(folder, 'gateway-url'), `${stack.gateway.url}\n`);
  await writeFile(join(folder, 'development-key'), `${stack.gateway.key}\n`);
});
afterAll(async () => {
  await stack.stop();
  await rm(folder, { recursive: true, force: true });
});

interface Run {
  code: number;
  out: string;
  err: string;
}

function sluice(words: string, options: { data?: string; environment?: NodeJS.ProcessEnv } = {}): Promise<Run> {
  const args = [PROGRAM, '--data', options.data ?? folder, ...words.split(' ')];
  const env = { ...process.env, SLUICE_URL: '', SLUICE_ADMIN_KEY: '', ...options.environment };
  return new Promise(resolve => {
    execFile(process.execPath, args, { env }, (error, out, err) => resolve({ code: error === null ? 0 : Number(error.code), out, err }));
  });
}

const use = (key: string) => stack.post(scripted({ pieces: ['a', 'b'] }), { headers: { authorization: `Bearer ${key}` } });

test('a key from the first command to its end', async () => {
  const made = await sluice('keys create --tenant acme --name app --rpm 60 --tpm 20000 --expires-in 30d');
  expect(made).toMatchObject({ code: 0, err: '' });
  const key = /^sk-sluice-acme-\S+$/m.exec(made.out)?.[0];
  if (key === undefined) throw new Error(made.out);
  const reply = await use(key);
  await reply.text();
  expect([reply.status, reply.headers.get('x-ratelimit-limit-requests')]).toEqual([200, '60']);

  const listed = await sluice('keys list --tenant acme');
  expect(listed.out).toMatch(
    /^KEY +NAME +STATE +SCOPES +REQUESTS\/MIN +TOKENS\/MIN +CONCURRENT +TOKENS\/DAY\n\w{12} +app +good until \d{4}-\d\d-\d\d +infer +60 +20,000 +- +-\n$/,
  );
  expect(listed.out).not.toContain(key.slice(-43));

  const { data } = JSON.parse((await sluice('--json keys list --tenant acme')).out) as ListOut<KeyOut>;
  const id = data[0]!.id;
  const changed = await sluice(`keys set ${id} --tenant acme --rpm none --concurrent 3 --expires-in never`);
  expect(changed.err).toBe('');
  expect(changed.out).toMatch(/good +infer +- +20,000 +3 +-\n$/);

  await eventually('the usage', async () => (await sluice('usage --tenant acme')).out.includes(id));
  const { data: rows } = JSON.parse((await sluice('--json usage --tenant acme')).out) as ListOut<UsageOut>;
  expect(rows).toMatchObject([{ key_id: id, model: 'test-model', requests: 1, completion_tokens: 2 }]);

  expect((await sluice(`keys revoke ${id} --tenant acme`)).out).toBe(`Key ${id} of tenant acme is revoked.\n`);
  expect((await use(key)).status).toBe(401);
  expect((await sluice('keys list --tenant acme')).out).toContain('revoked');
});

test('tenants and batchers', async () => {
  expect((await sluice('tenants set globex --tpd 1000000 --rpm 5')).out).toMatch(
    /^TENANT .*\nglobex +\d{4}-\d\d-\d\d +1 +5 +- +- +1,000,000\n$/,
  );
  expect((await sluice('tenants list')).out).toMatch(/\ndev +- .*\nglobex /);
  expect((await sluice('tenants delete globex')).out).toContain('gone');
  expect((await sluice('usage --tenant dev')).out).toBe('Nothing was used.\n');
  expect((await sluice('batchers list')).out).toMatch(/\nsource-test-model +test-model +serving +0\/\d+ +0 +0% +0 +0\n$/);
  expect((await sluice('batchers drain source-test-model')).out).toContain('is asked to drain');
});

describe('what is wrong is one line', () => {
  test.each([
    ['keys create', 2, "required option '--tenant <name>'"],
    ['keys create --tenant acme --rpm 0', 2, 'whole number from 1'],
    ['keys create --tenant acme --expires-in soon', 2, 'as in 30d'],
    ['keys create --tenant acme --scope root', 2, 'Allowed choices are infer, admin'],
    ['keys create --tenant Acme', 1, '400 invalid_value'],
    ['keys list --tenant nobody', 1, "There is no tenant 'nobody'. (404 not_found)"],
    ['keys revoke none --tenant dev', 1, '404 not_found'],
    ['usage --tenant dev --from tomorrow', 1, "Invalid value for 'from'"],
    ['batchers drain none', 1, 'There is no such batcher'],
    ['--url ftp://a keys list --tenant dev', 2, 'no URL'],
    ['--key-file /does/not/exist tenants list', 2, 'cannot be read'],
    ['nonsense', 2, 'unknown command'],
  ])('%s', async (words, code, line) => {
    const run = await sluice(words);
    expect(run.out).toBe('');
    expect(run.err).toContain(line);
    expect(run.err).not.toMatch(/\n\s+at /);
    expect(run.code).toBe(code);
  });

  test('no gateway there', async () => {
    const run = await sluice(`--url http://127.0.0.1:${await freePort()} tenants list`);
    expect(run).toMatchObject({ code: 1, out: '' });
    expect(run.err).toMatch(/^error: No gateway answers at .*npm start.*--url/);
  });
});

describe('the key', () => {
  test('of the environment goes before that of the folder', async () => {
    expect((await sluice('tenants list', { environment: { SLUICE_ADMIN_KEY: OPERATOR } })).code).toBe(0);
    const run = await sluice('tenants list', { environment: { SLUICE_ADMIN_KEY: 'wrong' } });
    expect(run).toMatchObject({ code: 1, err: expect.stringContaining('401 invalid_api_key') });
  });

  test('of a file', async () => {
    await writeFile(join(folder, 'operator'), `${OPERATOR}\n`);
    const elsewhere = { data: join(folder, 'empty'), environment: { SLUICE_URL: stack.gateway.url } };
    expect((await sluice(`--key-file ${join(folder, 'operator')} tenants list`, elsewhere)).code).toBe(0);
    expect(await sluice('tenants list', elsewhere)).toMatchObject({ code: 2, err: expect.stringContaining('SLUICE_ADMIN_KEY') });
  });

  test('of this machine’s gateway is sent to no other machine', async () => {
    expect(await sluice('--url http://192.0.2.1 tenants list')).toMatchObject({
      code: 2,
      err: expect.stringContaining('admin key is needed'),
    });
  });
});
