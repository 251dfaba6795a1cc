/** StartLock: at most one `npm start` a data folder; the lock of a process that is gone counts for nothing. */
import { linkSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { StartError } from './start-error.ts';

export interface StartLock {
  release(): void;
}

/** Throws a StartError when a living process holds the lock. */
export function acquireStartLock(folder: string): StartLock {
  const path = join(folder, 'start.lock');
  const own = `${path}.${process.pid}`;
  const identity = identityOf(process.pid) ?? `${process.pid}`;
  // Written aside and linked: whoever reads the lock reads all of it.
  writeFileSync(own, identity, { mode: 0o600 });
  try {
    for (let attempt = 0; attempt < 10; attempt += 1) {
      if (linked(own, path)) return { release: () => release(path, identity) };
      const holder = read(path);
      if (holder === undefined) continue;
      const pid = Number(holder.split(' ')[0]);
      if (identityOf(pid) === holder) {
        throw new StartError(
          `Sluice already runs on the data folder ${folder} (process ${pid}). Stop it first, or choose another with --data.`,
        );
      }
      // Only what was judged dead is removed, not a lock taken since.
      release(path, holder);
    }
    throw new StartError(`The lock ${path} cannot be taken. Remove that file if no Sluice is running.`);
  } finally {
    rmSync(own, { force: true });
  }
}

/** Number and start time, so that a later process with the same number is not taken for the holder. Undefined when it does not live. */
function identityOf(pid: number): string | undefined {
  if (!Number.isInteger(pid) || pid <= 0) return undefined;
  try {
    process.kill(pid, 0);
  } catch (thrown) {
    // EPERM: it lives and belongs to somebody else.
    if ((thrown as NodeJS.ErrnoException).code !== 'EPERM') return undefined;
  }
  const stat = read(`/proc/${pid}/stat`);
  // Field 22, counted after the program's name, which may hold spaces and brackets; field 3 is the state.
  const fields = stat?.slice(stat.lastIndexOf(')') + 2).split(' ');
  if (fields?.[0] === 'Z') return undefined;
  return fields === undefined ? `${pid}` : `${pid} ${fields[19]}`;
}

function linked(from: string, to: string): boolean {
  try {
    linkSync(from, to);
    return true;
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw thrown;
  }
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}

function release(path: string, identity: string): void {
  if (read(path) === identity) rmSync(path, { force: true });
}
