/**
 * Children: the processes that a bench has started. Each leads its own process group, so that what it starts in turn (a compiler
 * under a build tool) is ended with it; none outlives `endAll`, however the run ends.
 */
import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import { once } from 'node:events';

const GRACE_MS = 3_000;
/** Lines of a failed command that its error repeats. */
const TAIL_LINES = 12;

export interface Finished {
  stdout: string;
  stderr: string;
}

export class Children {
  readonly #running = new Set<ChildProcess>();
  readonly #closers = new Set<() => Promise<void>>();
  #isEnding = false;

  /** Starts a process that goes on; the caller ends it with `end`. */
  start(command: string, args: readonly string[], options: SpawnOptions = {}): ChildProcess {
    if (this.#isEnding) throw new Error('the run is ending');
    const child = spawn(command, args, { ...options, detached: true });
    this.#running.add(child);
    const forget = () => this.#running.delete(child);
    child.once('exit', forget);
    child.once('error', forget);
    return child;
  }

  /** Runs a command to its end; throws with its last lines when it fails. */
  async run(command: string, args: readonly string[], options: SpawnOptions = {}): Promise<Finished> {
    const child = this.start(command, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] });
    const output = { stdout: '', stderr: '' };
    child.stdout?.setEncoding('utf8').on('data', text => {
      output.stdout += text;
    });
    child.stderr?.setEncoding('utf8').on('data', text => {
      output.stderr += text;
    });
    const [code, signal] = await once(child, 'close').catch((error: unknown) => {
      throw new Error(`cannot run ${command}: ${error instanceof Error ? error.message : String(error)}`);
    });
    if (code !== 0) {
      const tail = `${output.stdout}\n${output.stderr}`.trim().split('\n').slice(-TAIL_LINES).join('\n');
      throw new Error(`${command} ended with ${signal ?? `code ${code}`}:\n${tail}`);
    }
    return output;
  }

  /** Asks the whole group to end, waits, then insists. */
  async end(child: ChildProcess): Promise<void> {
    if (!this.#running.has(child)) return;
    const exited = once(child, 'exit');
    signalGroup(child, 'SIGTERM');
    const insist = setTimeout(() => signalGroup(child, 'SIGKILL'), GRACE_MS);
    await exited.catch(() => undefined);
    clearTimeout(insist);
  }

  /** Something that has started processes by itself and ends them by `close`, which may be called more than once. */
  adopt(close: () => Promise<void>): void {
    this.#closers.add(close);
    if (this.#isEnding) void close();
  }

  async endAll(): Promise<void> {
    this.#isEnding = true;
    await Promise.all([...[...this.#running].map(child => this.end(child)), ...[...this.#closers].map(close => close())]);
  }
}

function signalGroup(child: ChildProcess, signal: NodeJS.Signals): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, signal);
  } catch (error) {
    // The group went away between the look and the signal.
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
