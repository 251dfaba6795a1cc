/** `npx sluice batch`: a file of requests becomes a file of answers, whoever is away meanwhile. */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from 'vitest';
import { eventually, type Stack, startStack } from '../gateway/stack.ts';
import { Terminal } from './terminal.ts';

const PROGRAM = join(import.meta.dirname, '..', '..', 'scripts', 'sluice.mjs');
const ENVIRONMENT = { SLUICE_URL: '', SLUICE_API_KEY: '', SLUICE_ADMIN_KEY: '' };

let stack: Stack;
let folder: string;
beforeAll(async () => {
  stack = await startStack({ bindings: { SLUICE_CACHE_TTL_MS: '0' } });
  folder = await mkdtemp(join(tmpdir(), 'sluice-batch-'));
  await writeFile(join(folder, 'gateway-url'), `${stack.gateway.url}\n`);
  await writeFile(join(folder, 'development-key'), `${stack.gateway.key}\n`);
});
afterAll(async () => {
  await stack.stop();
  await rm(folder, { recursive: true, force: true });
});
afterEach(() => stack.source.resume());

const inFolder = (name: string) => join(folder, name);

function start(...args: string[]) {
  const child = spawn(process.execPath, [PROGRAM, '--data', folder, ...args], { cwd: folder, env: { ...process.env, ...ENVIRONMENT } });
  let [out, err] = ['', ''];
  child.stdout.on('data', bytes => (out += String(bytes)));
  child.stderr.on('data', bytes => (err += String(bytes)));
  const ended = new Promise<{ code: number | null; out: string; err: string }>(resolve =>
    child.once('close', code => resolve({ code, out, err })),
  );
  return { ended, kill: (signal: NodeJS.Signals) => void child.kill(signal), err: () => err };
}

async function input(name: string, lines: readonly string[]): Promise<string> {
  await writeFile(inFolder(name), lines.join('\n'));
  return name;
}

const line = (customId: string, content: string, more: object = {}) =>
  JSON.stringify({
    ...{ custom_id: customId, method: 'POST', url: '/v1/chat/completions' },
    body: { model: 'default', messages: [{ role: 'user', content }], ...more },
  });

async function answers(path: string): Promise<Record<string, string>> {
  const lines = (await readFile(inFolder(path), 'utf8'))
    .trimEnd()
    .split('\n')
    .map(text => JSON.parse(text));
  return Object.fromEntries(
    lines.map(({ custom_id, response }) => [custom_id, response.body.choices?.[0].message.content ?? response.body.error.code]),
  );
}

test('answers and refusals in files beside the input', async () => {
  const file = await input('first.jsonl', [line('a', 'one'), line('b', 'two'), line('c', 'three', { temperature: 9 })]);
  const { code, out, err } = await start('batch', file).ended;
  expect(out).toMatch(
    /^Batch batch_\w+ is completed: 2 of 3 answered, 1 not; \d+ prompt tokens, 2 answer tokens\n {2}first.output.jsonl\n {2}first.errors.jsonl\n$/,
  );
  expect([code, err]).toEqual([1, expect.stringMatching(/: 100 %\n$/)]);
  expect(await answers('first.output.jsonl')).toEqual({ a: 'one', b: 'two' });
  expect(await answers('first.errors.jsonl')).toEqual({ c: 'invalid_value' });
});

test('the gateway goes and comes back', async () => {
  const slow = JSON.stringify({ pieces: ['slow ', 'and ', 'sure'], stepMs: 300 });
  const names = Array.from({ length: 30 }, (_, index) => `line-${index}`);
  const file = await input(
    'long.jsonl',
    names.map(name => line(name, slow)),
  );
  const from = stack.source.taken.length;
  const running = start('batch', file, '--output', 'elsewhere.jsonl');
  await eventually('some to be taken', () => stack.source.taken.length > from);
  await stack.gateway.kill();
  await new Promise(resolve => setTimeout(resolve, 1_500));
  await stack.gateway.revive();
  expect((await running.ended).code).toBe(0);
  expect(await answers('elsewhere.jsonl')).toEqual(Object.fromEntries(names.map(name => [name, 'slow and sure'])));
  expect(existsSync(inFolder('long.errors.jsonl'))).toBe(false);
});

test('Ctrl-C leaves it to the gateway; by its id one comes back, or stops it', async () => {
  const file = await input('held.jsonl', [line('a', 'one')]);
  await stack.source.hold();
  const running = start('batch', file);
  await eventually('it to be begun', () => running.err().includes('batch_'));
  running.kill('SIGINT');
  const { code, err } = await running.ended;
  const id = /npx sluice batch (batch_\w+)/.exec(err)?.[1];
  expect([code, id]).toEqual([130, expect.any(String)]);
  stack.source.resume();
  expect((await start('batch', id!).ended).code).toBe(0);
  expect(await answers(`${id}.output.jsonl`)).toEqual({ a: 'one' });

  await stack.source.hold();
  const { out } = await start('batch', file, '--detach').ended;
  const second = /^(batch_\w+)$/m.exec(out)![1]!;
  expect((await start('batches', 'cancel', second).ended).code).toBe(0);
  await eventually('it to be over', async () =>
    (await start('batches', 'list').ended).out.includes(`${second}  /v1/chat/completions  cancelled`),
  );
  const end = await start('batch', second).ended;
  expect([end.code, end.out]).toEqual([1, expect.stringContaining('is cancelled: 0 of 1 answered, 1 not')]);
});

test.each<[string, string[], number, string]>([
  ['no such file', ['none.jsonl'], 2, 'There is no file none.jsonl.'],
  ['a file that is something else', ['gateway-url'], 2, 'is no request'],
  ['an endpoint that there is not', ['gateway-url', '--endpoint', '/v1/x'], 2, 'Allowed choices are'],
  ['a batch that there is not', ['batch_none'], 1, '404 not_found'],
])('%s', async (_, args, code, message) => {
  const run = await start('batch', ...args).ended;
  expect([run.code, run.err]).toEqual([code, expect.stringContaining(message)]);
  expect(run.err).not.toMatch(/\n\s+at /);
});

test('an input with faults is said to be one, line by line', async () => {
  const file = await input('faulty.jsonl', [line('a', 'x'), line('a', 'x'), '{']);
  const { code, out } = await start('batch', file).ended;
  expect([code, out]).toEqual([
    1,
    expect.stringMatching(/is failed\n {2}line 2: The custom_id 'a'.*\n {2}line 3: This line is not parseable/),
  ]);
});

test('a bar in a terminal', async () => {
  const file = await input(
    'bar.jsonl',
    Array.from({ length: 40 }, (_, index) => line(`n${index}`, JSON.stringify({ pieces: ['a', 'b'], stepMs: 700 }))),
  );
  const view = new Terminal([process.execPath, PROGRAM, '--data', folder, 'batch', inFolder(file)], ENVIRONMENT);
  onTestFinished(() => view.close());
  await view.shows(/█.* \d+ % \d+ of 40, \d+\.\d tokens\/s, \d+ s left/);
  expect(await view.ended).toBe(0);
});
