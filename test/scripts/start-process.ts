/** StartProcess: `npm start` as a process of a test, on a free port and a Redis of its own unless told otherwise; and what it says. */
import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { until } from './process-life.ts';

const RUN = join(import.meta.dirname, '../../scripts/run.mjs');

export class StartProcess {
  output = '';
  readonly ended: Promise<number | null>;
  #child: ChildProcess;

  constructor({ args, environment = {} }: { args: readonly string[]; environment?: NodeJS.ProcessEnv }) {
    this.#child = spawn('node', [RUN, 'start', '--port', '0', ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, REDIS_URL: undefined, ...environment },
    });
    for (const stream of [this.#child.stdout, this.#child.stderr]) stream?.on('data', bytes => (this.output += bytes));
    this.ended = new Promise(resolve => this.#child.once('close', code => resolve(code)));
  }

  /** What the pattern captures, as soon as it is said; throws when the process ends without. */
  async says(pattern: RegExp): Promise<string> {
    let over = false;
    void this.ended.then(() => (over = true));
    await until(() => over || pattern.test(this.output));
    const found = pattern.exec(this.output);
    if (found === null) throw new Error(`npm start ended without ${pattern}:\n${this.output}`);
    return found[1] ?? found[0];
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  async stop(): Promise<void> {
    this.signal('SIGTERM');
    await this.ended;
  }
}
