/** Supervised: a small supervisor for tests: runs `sleep` and a Node program as children, prints their numbers, and waits to be killed. */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ChildProcess } from '../../../scripts/supervisor/child-process.ts';

const preload = pathToFileURL(join(import.meta.dirname, '../../../scripts/supervisor/end-with-parent.ts')).href;
const commands = [
  ['sleep', '600'],
  [process.execPath, '--import', preload, '-e', 'setInterval(() => {}, 1000)'],
];
const children = commands.map(command => {
  const child = new ChildProcess({ name: 'child', command, onCrash: () => {}, onFailure: () => {}, graceMs: 1000, deathSignal: 'SIGKILL' });
  child.start();
  return child;
});
process.stdout.write(`${JSON.stringify(children.map(child => child.pid))}\n`);
setInterval(() => {}, 1000);
