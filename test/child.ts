/** Child: a server process of a test, started and ended; it leaves nothing behind but what it printed. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';

export interface Child {
  readonly pid: number;
  /** Everything it has printed. */
  output(): string;
  /** Resolves when `probe` does so without throwing; throws with the output when the process ends or a minute passes first. */
  until(probe: () => Promise<unknown>): Promise<void>;
  kill(signal: NodeJS.Signals): void;
  /** SIGTERM, and SIGKILL when that has done nothing for 3 s. */
  stop(): Promise<void>;
}

const START_LIMIT_MS = 60_000;
const STOP_LIMIT_MS = 3_000;

export function startChild(command: string, args: readonly string[], environment: NodeJS.ProcessEnv = {}): Child {
  const env = { ...process.env, ...environment };
  const child: ChildProcess = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], env });
  let output = '';
  const ended = once(child, 'exit');
  ended.catch(() => undefined);
  child.on('error', error => {
    output += String(error);
  });
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', data => (output += String(data)));
  const isOver = () => child.exitCode !== null || child.signalCode !== null || child.pid === undefined;
  // Should the test process die, its children go with it.
  const killNow = () => void child.kill('SIGKILL');
  process.once('exit', killNow);
  return {
    pid: child.pid ?? -1,
    output: () => output,
    async until(probe) {
      const deadline = Date.now() + START_LIMIT_MS;
      while (true) {
        try {
          await probe();
          return;
        } catch (error) {
          if (isOver() || Date.now() > deadline) throw new Error(`${command} did not start: ${String(error)}\n${output}`);
        }
        await new Promise(resolve => setTimeout(resolve, 20));
      }
    },
    kill: signal => void child.kill(signal),
    async stop() {
      process.off('exit', killNow);
      if (isOver()) return;
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), STOP_LIMIT_MS);
      await ended;
      clearTimeout(timer);
    },
  };
}
