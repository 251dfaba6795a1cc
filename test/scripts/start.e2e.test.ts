/** `npm start` as a person meets it: the whole product, with the real model, Redis and workerd. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isAlive, until } from './process-life.ts';
import { StartProcess } from './start-process.ts';

let folder: string;
let data: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-start-'));
  data = join(folder, 'data');
});
afterAll(() => rmSync(folder, { recursive: true }));

const Start = class extends StartProcess {
  constructor(...args: string[]) {
    super({ args: ['--data', data, ...args] });
  }
};

/** Processes that name our data folder, carry our mark, or work in the folder: Redis shows neither arguments nor environment. */
function ours(): { pid: number; command: string }[] {
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .flatMap(name => {
      try {
        const command = readFileSync(`/proc/${name}/cmdline`, 'utf8').replaceAll('\0', ' ');
        const environment = readFileSync(`/proc/${name}/environ`, 'utf8');
        const isOurs =
          command.includes(data) || environment.includes(`SLUICE_TEST_START=${data}`) || readlinkSync(`/proc/${name}/cwd`).startsWith(data);
        return isOurs ? [{ pid: Number(name), command }] : [];
      } catch {
        return [];
      }
    });
}

describe('npm start', () => {
  let start: StartProcess;
  let url: string;
  let key: string;

  beforeAll(async () => {
    process.env.SLUICE_TEST_START = data;
    start = new Start();
    url = await start.says(/Ready at (http\S+)/);
    key = await start.says(/(sk-sluice-dev-\S+)/);
    await start.says(/Ctrl-C stops everything/);
  });
  afterAll(async () => {
    start.signal('SIGTERM');
    await start.ended;
  });

  async function ask(question: string): Promise<{ status: number; body: string }> {
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'default', messages: [{ role: 'user', content: question }], temperature: 0, max_tokens: 40 }),
    });
    return { status: response.status, body: await response.text() };
  }

  it('prints a curl line that streams when it is pasted', async () => {
    const line = await start.says(/^ {2}(curl .*)$/m);
    const { stdout, status } = spawnSync('sh', ['-c', line], { encoding: 'utf8' });
    expect(status).toBe(0);
    expect(stdout.match(/^data: /gm)?.length).toBeGreaterThan(3);
    expect(stdout.trimEnd().endsWith('data: [DONE]')).toBe(true);
  });

  it('answers', async () => {
    const { status, body } = await ask('What is the capital of France? Answer in one sentence.');
    expect(status).toBe(200);
    expect(body).toContain('Paris');
  });

  it('shows neither the Redis password nor the key among the arguments of any process', async () => {
    const password = /^requirepass (\S+)$/m.exec(readFileSync(join(data, 'redis', 'redis.conf'), 'utf8'))?.[1] as string;
    const commands = ours().map(each => each.command);
    expect(commands.length).toBeGreaterThan(3);
    for (const command of commands) {
      expect(command).not.toContain(password);
      expect(command).not.toContain(key);
    }
    expect(start.output).not.toContain(password);
  });

  it('refuses a second start on the same data folder', async () => {
    const second = new Start();
    expect(await second.ended).toBe(2);
    expect(second.output).toMatch(/^error: Sluice already runs on the data folder .* \(process \d+\)\. .*\n$/);
  });

  it.each([
    ['batcher', /batcher\/main\.ts/],
    ['gateway', /workerd serve/],
    ['redis', /redis-server|valkey-server/],
  ])('reports a killed %s and starts it again', async (name, pattern) => {
    const before = ours().filter(each => pattern.test(each.command));
    expect(before).toHaveLength(1);
    for (const { pid } of before) process.kill(pid, 'SIGKILL');
    await start.says(new RegExp(`warning: ${name}\\S* ended \\(SIGKILL\\); starting it again in 0.5 s`));
    await until(() =>
      ask('Hello').then(
        ({ status }) => status === 200,
        () => false,
      ),
    );
  });

  it('ends all of it on SIGTERM, and keeps the key for the next start', async () => {
    const pids = ours().map(each => each.pid);
    start.signal('SIGTERM');
    expect(await start.ended).toBe(0);
    expect(pids.filter(isAlive)).toEqual([]);
    expect(readdirSync(data)).not.toContain('start.lock');
    start = new Start();
    expect(await start.says(/(sk-sluice-dev-\S+)/)).toBe(key);
  });

  it('ended before it was ready leaves nothing either', async () => {
    start.signal('SIGTERM');
    await start.ended;
    const early = new Start();
    await until(() => ours().some(each => /redis-server|valkey-server/.test(each.command)));
    early.signal('SIGINT');
    expect(await early.ended).toBe(0);
    expect(ours()).toEqual([]);
  });
});

describe('npm start refuses with one line and exit code 2', () => {
  async function refusal(...args: string[]): Promise<string> {
    const start = new Start(...args);
    expect(await start.ended).toBe(2);
    const complaint = start.output.split('\n').filter(line => line.startsWith('error: '));
    expect(complaint).toHaveLength(1);
    expect(start.output).not.toMatch(/^\s+at /m);
    return complaint[0] as string;
  }

  it('a port that is taken', async () => {
    const server = createServer();
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as { port: number };
    expect(await refusal('--port', String(port))).toContain(`Port ${port} is taken`);
    server.close();
  });

  it('a model that is not there', async () => {
    expect(await refusal('--model', 'no-such-model')).toContain('--model no-such-model is neither a file nor a known name');
  });

  it('a file that is no GGUF', async () => {
    const path = join(folder, 'text.gguf');
    writeFileSync(path, 'This is no model.');
    expect(await refusal('--model', path)).toMatch(/GGUF/);
  });

  it('a Redis that does not answer, without its password', async () => {
    const complaint = await refusal('--redis', 'redis://:s3cret@127.0.0.1:1');
    expect(complaint).toContain('redis://127.0.0.1:1 does not answer');
    expect(complaint).not.toContain('s3cret');
  });

  it('an option that the batcher refuses', async () => {
    expect(await refusal('--max-running', '0')).toContain('batcher-1 does not start');
  });
});
