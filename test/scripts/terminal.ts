/** Terminal: a program in a terminal of its own, as a person has it: what is typed, and what is on the screen. Python's pty makes the terminal. */
import { type ChildProcess, spawn } from 'node:child_process';
import { until } from './process-life.ts';

const BRIDGE = 'import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))';

export class Terminal {
  #child: ChildProcess;
  #output = '';
  readonly ended: Promise<number | null>;

  constructor(command: readonly string[], environment: NodeJS.ProcessEnv = {}) {
    this.#child = spawn('python3', ['-c', BRIDGE, ...command], {
      env: { ...process.env, TERM: 'xterm', COLUMNS: '120', LINES: '40', ...environment },
    });
    for (const stream of [this.#child.stdout, this.#child.stderr]) stream?.on('data', bytes => (this.#output += String(bytes)));
    this.ended = new Promise(resolve => this.#child.once('close', code => resolve(code)));
  }

  /** All that was ever on the screen, without what moves and colours. */
  get text(): string {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is taken away
    return this.#output.replaceAll(/\x1b\[[0-9;?]*[A-Za-z]/g, '').replaceAll('\r', '');
  }

  /** With all of that. */
  get raw(): string {
    return this.#output;
  }

  type(text: string): void {
    this.#child.stdin?.write(text);
  }

  /** As soon as it is on the screen; throws when the program ends without. */
  async shows(what: string | RegExp): Promise<void> {
    let isOver = false;
    void this.ended.then(() => (isOver = true));
    const isThere = () => (typeof what === 'string' ? this.text.includes(what) : what.test(this.text));
    await until(() => isThere() || isOver);
    if (!isThere()) throw new Error(`it ended without ${what}:\n${this.text}`);
  }

  async close(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.ended;
  }
}
