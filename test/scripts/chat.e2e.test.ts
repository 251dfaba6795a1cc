/** `npx sluice chat` and `npx sluice status` against a running gateway: piped, by arguments, and in a terminal. */
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { freePort } from '../free-port.ts';
import { eventually, type Stack, startStack } from '../gateway/stack.ts';
import type { Script } from '../gateway/token-source.ts';
import { Terminal } from './terminal.ts';

const PROGRAM = join(import.meta.dirname, '..', '..', 'scripts', 'sluice.mjs');

let stack: Stack;
let folder: string;
beforeAll(async () => {
  stack = await startStack();
  folder = await mkdtemp(join(tmpdir(), 'sluice-chat-'));
  await writeFile(join(folder, 'gateway-url'), `${stack.gateway.url}\n`);
  await writeFile(join(folder, 'development-key'), `${stack.gateway.key}\n`);
});
afterAll(async () => {
  await stack.stop();
  await rm(folder, { recursive: true, force: true });
});

const ENVIRONMENT = { SLUICE_URL: '', SLUICE_API_KEY: '', SLUICE_ADMIN_KEY: '' };

interface Running {
  /** What it has written on standard output so far. */
  out(): string;
  kill(signal: NodeJS.Signals): void;
  ended: Promise<{ code: number | null; out: string; err: string }>;
}

function start(args: readonly string[], options: { input?: string; environment?: NodeJS.ProcessEnv } = {}): Running {
  const child = spawn(process.execPath, [PROGRAM, '--data', folder, ...args], {
    env: { ...process.env, ...ENVIRONMENT, ...options.environment },
  });
  let [out, err] = ['', ''];
  child.stdout.on('data', bytes => (out += String(bytes)));
  child.stderr.on('data', bytes => (err += String(bytes)));
  child.stdin.end(options.input ?? '');
  return {
    out: () => out,
    kill: signal => void child.kill(signal),
    ended: new Promise(resolve => child.once('close', code => resolve({ code, out, err }))),
  };
}

const chat = (args: readonly string[], input?: string) => start(['chat', ...args], input === undefined ? {} : { input }).ended;
const script = (steps: Script) => JSON.stringify(steps);
const lastJob = () => stack.source.jobs.get(stack.source.taken.at(-1)!)!;
const messagesOf = () =>
  lastJob().prompt.kind === 'chat' ? (lastJob().prompt as { messages: { role: string; content: string }[] }).messages : [];

describe('one question', () => {
  test('by arguments: the answer and nothing else on standard output', async () => {
    const reasoned = script({ reasoning: ['Hm.'], pieces: ['Paris'] });
    expect(await chat([reasoned])).toEqual({ code: 0, out: 'Paris\n', err: '' });
    expect(await chat([script({ pieces: ['Hello', ' there'] })])).toEqual({ code: 0, out: 'Hello there\n', err: '' });
    expect((await chat(['two words\n'])).out).toBe('two words\n');
  });

  test('piped in, behind the one of the arguments', async () => {
    expect(await chat([], 'from a pipe\n')).toEqual({ code: 0, out: 'from a pipe\n', err: '' });
    await chat(['What', 'is', 'this?'], 'a text\n');
    expect(messagesOf()).toEqual([{ role: 'user', content: 'What is this?\n\na text' }]);
  });

  test('with options and figures', async () => {
    const options = ['--system', 'Be brief.', '--max-tokens', '2', '--temperature', '0', '--seed', '7', '--stats'];
    const run = await chat([...options, script({ pieces: ['a', 'b', 'c'], stepMs: 50 })]);
    expect(run).toMatchObject({ code: 0, out: 'ab\n' });
    expect(run.err).toMatch(/^2 tokens, \d+\.\d tokens\/s, first after \d+\.\d\d s, cut off by the length limit\n$/);
    expect(lastJob()).toMatchObject({ stopping: { maxTokens: 2 }, sampling: { temperature: 0, seed: 7 } });
    expect(messagesOf()[0]).toEqual({ role: 'system', content: 'Be brief.' });
  });

  test('what an answer holds does not steer the terminal', async () => {
    expect((await chat([script({ pieces: ['a\u001b[2J', '\u0007b\n\tc'] })])).out).toBe('a\ufffd[2J\ufffdb\n\tc\n');
  });
});

describe('what goes wrong is one line', () => {
  test.each<[string[], number, string]>([
    [['--model', 'none', 'hi'], 1, '404 model_not_found'],
    [['--temperature', '3', 'hi'], 2, 'number from 0 to 2'],
    [[], 2, 'There is no question'],
    [[JSON.stringify({ error: { code: 'generation_failed', message: 'No luck.' } })], 1, 'No luck. (generation_failed)'],
    [
      [JSON.stringify({ pieces: ['a', 'b'], error: { code: 'generation_failed', message: 'No luck.', at: 1 } })],
      1,
      'No luck. (generation_failed)',
    ],
  ])('%j', async (args, code, line) => {
    const run = await chat(args);
    expect([run.code, run.err.split('\n').filter(text => text.includes(line))]).toEqual([code, [expect.stringMatching(/^error: /)]]);
    expect(run.err).not.toMatch(/\n\s+at /);
  });

  test('no gateway, no key', async () => {
    const away = await start(['--url', `http://127.0.0.1:${await freePort()}`, 'chat', 'hi']).ended;
    expect(away).toMatchObject({ code: 1, err: expect.stringContaining('No gateway answers') });
    const far = await start(['--url', 'http://192.0.2.1', 'chat', 'hi']).ended;
    expect(far).toMatchObject({ code: 2, err: expect.stringContaining('SLUICE_API_KEY') });
  });
});

test('an answer outlives the gateway that it came from', async () => {
  const running = start(['chat', script({ pieces: ['one ', 'two ', 'three ', 'four ', 'five'], stepMs: 400 })]);
  await eventually('a part of it', () => running.out().includes('two'));
  await stack.gateway.restart();
  expect(await running.ended).toEqual({ code: 0, out: 'one two three four five\n', err: '' });
});

test('a signal stops the answer and the work on it', async () => {
  const running = start(['chat', script({ pieces: ['word '], repeat: 1_000, stepMs: 20 })]);
  await eventually('a part of it', () => running.out().includes('word'));
  const id = stack.source.taken.at(-1)!;
  running.kill('SIGINT');
  expect(await running.ended).toMatchObject({ code: 130, err: 'stopped\n' });
  await eventually('the job was cancelled', () => stack.source.cancelled.includes(id));
});

describe('in a terminal', () => {
  function terminal(...args: string[]): Terminal {
    const opened = new Terminal([process.execPath, PROGRAM, '--data', folder, ...args], ENVIRONMENT);
    onTestFinished(() => opened.close());
    return opened;
  }

  test('what the model says to itself, dimmed, in front of the answer', async () => {
    const session = terminal('chat');
    await session.shows('> ');
    session.type(`${script({ reasoning: ['Hm,', ' so.'], pieces: ['Paris'], stepMs: 50 })}\r`);
    await session.shows(/Hm, so\.\n\nParis\n3 tokens/);
    expect(session.raw).toContain('\x1b[2mHm,\x1b[0m');
  });

  test('questions and answers, with what was said before and the speed of each', async () => {
    const session = terminal('chat', '--system', 'Be brief.');
    await session.shows('> ');
    session.type(`${script({ pieces: ['first', ' answer'], stepMs: 50 })}\r`);
    await session.shows(/first answer\n2 tokens, \d+\.\d tokens\/s, first after/);
    session.type('second question\r');
    await session.shows('second question\n2 tokens');
    expect(messagesOf().map(({ role, content }) => [role, content])).toEqual([
      ['system', 'Be brief.'],
      ['user', expect.any(String)],
      ['assistant', 'first answer'],
      ['user', 'second question'],
    ]);
    session.type('/reset\r/system\r/model test-model\r"""\rof two\rlines"""\r');
    await session.shows('of two\nlines\n');
    expect(messagesOf()).toEqual([{ role: 'user', content: 'of two\nlines' }]);
    session.type('/nonsense\r');
    await session.shows('There is no command /nonsense');
    session.type('/exit\r');
    expect(await session.ended).toBe(0);
  });

  test('Ctrl-C stops the answer and not the session; Ctrl-D ends it', async () => {
    const session = terminal('chat');
    await session.shows('> ');
    session.type(`${script({ pieces: ['word '], repeat: 1_000, stepMs: 20 })}\r`);
    await session.shows('word word');
    const id = stack.source.taken.at(-1)!;
    session.type('\x03');
    await session.shows('stopped');
    await eventually('the job was cancelled', () => stack.source.cancelled.includes(id));
    session.type('half a quest\x03');
    session.type('\x03');
    await session.shows('(Ctrl-D or /exit leaves)');
    session.type('a whole one\r');
    await session.shows('a whole one\n3 tokens');
    session.type('\x04');
    expect(await session.ended).toBe(0);
  });

  test('a refusal does not end the session', async () => {
    const session = terminal('chat', '--model', 'none');
    await session.shows('> ');
    session.type('hi\r');
    await session.shows('error: ');
    session.type('/model default\r');
    session.type('hello\r');
    await session.shows('hello\n1 token');
  });

  test('the state of things, anew each second, until Ctrl-C', async () => {
    const view = terminal('status', '--interval', '0.2');
    await view.shows('source-test-model');
    await view.shows(/(Sluice at .*){2}/s);
    view.type('\x03');
    expect(await view.ended).toBe(0);
    // The screen is as it was before.
    expect(view.raw.endsWith('\x1b[?25h\x1b[?1049l')).toBe(true);
  });
});

describe('status elsewhere', () => {
  test('once, as tables', async () => {
    const { code, out } = await start(['status']).ended;
    expect(code).toBe(0);
    expect(out).toMatch(
      /^MODEL +BATCHERS +RUNNING +WAITING +QUEUED +PROMPT TOK\/S +ANSWER TOK\/S +A REQUEST\ntest-model +1 +0\/64 +0 +0 +0 +0 +0\n\nBATCHER /,
    );
  });

  test('as JSON, with jobs that wait', async () => {
    await stack.source.hold();
    Object.assign(stack.source.card, { generatedTokensPerSecondNow: 40.04, requestTokensPerSecondNow: 10 });
    await stack.source.publish();
    const asked = chat(['wait']);
    const status = async () =>
      JSON.parse((await start(['--json', 'status']).ended).out) as { models: object[]; queues: object[]; batchers: object[] };
    await eventually('it waits', async () => JSON.stringify((await status()).queues).includes('"waiting_count":1'));
    expect((await status()).models).toEqual([
      {
        ...{ model: 'test-model', batcher_count: 1, running_count: 0, max_running_count: 64, waiting_count: 0, queued_count: 1 },
        ...{ prompt_tokens_per_second: 0, generated_tokens_per_second: 40.04, request_tokens_per_second: 10 },
      },
    ]);
    expect((await status()).queues).toEqual(
      expect.arrayContaining([
        { object: 'queue', model: 'test-model', kind: 'shared', batcher_id: null, waiting_count: 1 },
        { object: 'queue', model: 'test-model', kind: 'quick', batcher_id: null, waiting_count: 0 },
        { object: 'queue', model: 'test-model', kind: 'own', batcher_id: 'source-test-model', waiting_count: 0 },
      ]),
    );
    stack.source.resume();
    expect((await asked).out).toBe('wait\n');
  });
});
