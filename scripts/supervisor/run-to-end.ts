/** RunToEnd: one program in the foreground, to its end; it is ended with us. */
import { spawn } from 'node:child_process';

/** Its exit code; 1 for an end by a signal, 127 when it could not be started. */
export function runToEnd(command: readonly string[], place: { folder: string; environment?: NodeJS.ProcessEnv }): Promise<number> {
  const [program, ...args] = command as [string, ...string[]];
  return new Promise(resolve => {
    const child = spawn(program, args, { cwd: place.folder, env: { ...process.env, ...place.environment }, stdio: 'inherit' });
    const forward = (signal: NodeJS.Signals) => child.kill(signal);
    const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
    for (const signal of signals) process.on(signal, forward);
    const finish = (code: number) => {
      for (const signal of signals) process.off(signal, forward);
      resolve(code);
    };
    child.once('error', error => {
      process.stderr.write(`${program}: ${error.message}\n`);
      finish(127);
    });
    child.once('exit', code => finish(code ?? 1));
  });
}
