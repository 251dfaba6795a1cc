import { expect, test } from 'vitest';
import { Children } from '../../bench/children.ts';

const SCRIPT = new URL('../../scripts/bench.ts', import.meta.url).pathname;

async function runBench(...args: string[]) {
  const child = new Children().start(process.execPath, [SCRIPT, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  const text = { stdout: '', stderr: '' };
  child.stdout!.on('data', bytes => {
    text.stdout += String(bytes);
  });
  child.stderr!.on('data', bytes => {
    text.stderr += String(bytes);
  });
  const code = await new Promise<number | null>(resolve => child.once('close', resolve));
  return { code, ...text };
}

test('an unknown name lists the benches and exits with 2', async () => {
  for (const name of ['nonsense', 'toString']) {
    const { code, stdout, stderr } = await runBench(name);
    expect(code).toBe(2);
    expect(stdout).toBe('');
    expect(stderr).toMatch(new RegExp(`no bench is called '${name}'[\\s\\S]*engine[\\s\\S]*serve[\\s\\S]*abort[\\s\\S]*quality`));
  }
});

test('no name lists the benches and exits with 2, --help with 0', async () => {
  expect(await runBench()).toMatchObject({ code: 2, stdout: expect.stringContaining('usage: npm run bench') });
  expect(await runBench('--help')).toMatchObject({ code: 0 });
});

test('help of a bench lists its options with defaults', async () => {
  expect(await runBench('engine', '--help')).toMatchObject({ code: 0, stdout: expect.stringMatching(/--batches .*1,2,4,8,16,32/) });
});

test.each([
  [['engine', '--threads', '0'], '--threads must be a whole number from 1'],
  [['engine', '--threads'], '--threads needs a value'],
  [['engine', '--thread=2'], 'unknown option --thread'],
  [['engine', 'serve'], 'one bench at a time'],
])('%j exits with 2 and says why', async (args, reason) => {
  expect(await runBench(...args)).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining(reason) });
});
