/**
 * ParentDeathSignal: wraps a command so that the kernel ends it when the supervisor dies, even by SIGKILL. Where the machine cannot do that
 * the command goes out as it is; Redis is then taken over at the next start, and Node children watch their parent themselves.
 */
import { spawnSync } from 'node:child_process';

let supported: boolean | undefined;

export function withParentDeathSignal(signal: NodeJS.Signals, command: readonly string[]): string[] {
  supported ??= spawnSync('setpriv', ['--pdeathsig', 'TERM', '--', 'true'], { stdio: 'ignore' }).status === 0;
  return supported ? ['setpriv', '--pdeathsig', signal.replace('SIG', ''), '--', ...command] : [...command];
}
