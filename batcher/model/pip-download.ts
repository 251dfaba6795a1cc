/** PipDownload: one wheel from the Python package index, by whatever pip the machine has, into a folder. */
import { spawn } from 'node:child_process';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';

export interface PipOptions {
  /** Receives the wheel; pip's own temporary files lie in it too. */
  folder: string;
  /** Bytes that pip has fetched so far, by what lies in the folder. */
  onBytes: (doneBytes: number) => void;
  signal: AbortSignal | undefined;
  /** Where pip is found and how it is set up. */
  environment: Readonly<Record<string, string | undefined>>;
}

const PIPS: readonly (readonly [command: string, ...args: string[]])[] = [
  ['python3', '-m', 'pip'],
  ['python', '-m', 'pip'],
  ['pip3'],
  ['pip'],
];
const POLL_MS = 250;

/** Path of the wheel. Throws with the reason of the last pip that could be started. */
export async function downloadWheel(requirement: string, options: PipOptions): Promise<string> {
  let reason = 'neither python3 with pip nor pip is installed';
  for (const pip of PIPS) {
    const outcome = await runPip(pip, requirement, options);
    if (outcome.state === 'failed') reason = outcome.reason;
    if (outcome.state !== 'done') continue;
    const wheel = (await readdir(options.folder)).find(name => name.endsWith('.whl'));
    if (wheel !== undefined) return join(options.folder, wheel);
    reason = 'pip ended without a wheel';
  }
  throw new Error(reason);
}

type Outcome = { state: 'done' } | { state: 'absent' } | { state: 'failed'; reason: string };

async function runPip(
  pip: readonly [string, ...string[]],
  requirement: string,
  { folder, onBytes, signal, environment }: PipOptions,
): Promise<Outcome> {
  const [command, ...args] = pip;
  const child = spawn(command, [...args, 'download', '--no-deps', '--no-input', '--disable-pip-version-check', '-d', folder, requirement], {
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { ...environment, TMPDIR: folder },
    ...(signal === undefined ? {} : { signal }),
  });
  let most = 0;
  // pip copies at the end, and its parts come and go; progress only rises.
  const measure = async (): Promise<void> => {
    most = Math.max(most, await folderBytes(folder));
    onBytes(most);
  };
  const poll = setInterval(() => void measure(), POLL_MS);
  let complaint = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    complaint = (complaint + text).slice(-8192);
  });
  try {
    return await new Promise<Outcome>((resolve, reject) => {
      child.on('error', thrown => {
        if ((thrown as NodeJS.ErrnoException).code === 'ENOENT') resolve({ state: 'absent' });
        else reject(thrown);
      });
      child.on('close', code => {
        if (code === 0) resolve({ state: 'done' });
        else if (/No module named pip/.test(complaint)) resolve({ state: 'absent' });
        else resolve({ state: 'failed', reason: lastError(complaint) ?? `pip ended with code ${code}` });
      });
    });
  } finally {
    clearInterval(poll);
  }
}

function lastError(complaint: string): string | undefined {
  const lines = complaint.split('\n').map(line => line.trim());
  return (
    lines
      .findLast(line => line.startsWith('ERROR:'))
      ?.slice('ERROR:'.length)
      .trim() ?? lines.findLast(line => line !== '')
  );
}

async function folderBytes(folder: string): Promise<number> {
  const names = await readdir(folder, { recursive: true }).catch(() => []);
  const sizes = await Promise.all(
    names.map(name =>
      stat(join(folder, name)).then(
        found => (found.isFile() ? found.size : 0),
        () => 0,
      ),
    ),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}
