import { once } from 'node:events';
import { expect, test } from 'vitest';
import { Children } from '../../bench/children.ts';

const isAlive = (pid: number) => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

async function gone(pid: number): Promise<void> {
  while (isAlive(pid)) await new Promise(resolve => setTimeout(resolve, 10));
}

test('endAll ends a child and what it has started itself, also when both ignore SIGTERM', async () => {
  const children = new Children();
  const stubborn = "process.on('SIGTERM', () => {}); setInterval(() => {}, 1000);";
  const parent = `const c = require('node:child_process').spawn(process.execPath, ['-e', ${JSON.stringify(stubborn)}]);
    ${stubborn} console.log(c.pid);`;
  const child = children.start(process.execPath, ['-e', parent], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = await once(child.stdout!, 'data');
  const grandchild = Number(String(line).trim());
  expect(isAlive(grandchild)).toBe(true);
  await children.endAll();
  await gone(child.pid!);
  await gone(grandchild);
  expect(() => children.start(process.execPath, ['-e', ''])).toThrow('ending');
}, 15_000);

test('a failed command says its last lines', async () => {
  const failing = new Children().run(process.execPath, ['-e', "console.error('reason'); process.exit(3)"]);
  await expect(failing).rejects.toThrow(/code 3:\n[\s\S]*reason/);
});

test('a command that does not exist is named', async () => {
  await expect(new Children().run('no-such-command-of-ours', [])).rejects.toThrow('cannot run no-such-command-of-ours');
});

test('a good command gives its output', async () => {
  expect(await new Children().run(process.execPath, ['-e', "console.log('out'); console.error('err')"])).toEqual({
    stdout: 'out\n',
    stderr: 'err\n',
  });
});
