/** ProcessUsage: what a process has taken so far, as Linux counts it; undefined where there is no /proc. */
import { readFile } from 'node:fs/promises';

/** USER_HZ, the unit of /proc, is 100 on every Linux of today. */
const MS_PER_TICK = 10;

/** Of all its threads, in ms. */
export async function cpuMs(pid: number): Promise<number | undefined> {
  const text = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined);
  if (text === undefined) return undefined;
  // The name before may hold blanks; these are the 14th and 15th fields.
  const [user, system] = text
    .slice(text.lastIndexOf(')') + 2)
    .split(' ')
    .slice(11, 13);
  return (Number(user) + Number(system)) * MS_PER_TICK;
}

export async function residentKib(pid: number): Promise<number | undefined> {
  const text = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => undefined);
  const match = /^VmRSS:\s+(\d+) kB/m.exec(text ?? '');
  return match === null ? undefined : Number(match[1]);
}
