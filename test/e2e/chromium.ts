/** Chromium: the browser that tests of pages run in: the machine's own, on Debian, as root, installed when there is none. */
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { type Browser, chromium } from 'playwright-core';
import { canInstallFromDebian, installFromDebian } from '../../scripts/supervisor/debian-package.ts';

const PROGRAMS = ['chromium', 'chromium-browser', 'google-chrome-stable', 'google-chrome'];

/** Path of the program; undefined, with a line that says so, where there is none and none may be installed. */
export async function chromiumPath(): Promise<string | undefined> {
  if (find() === undefined && canInstallFromDebian()) {
    process.stderr.write('Installing chromium from Debian (once) …\n');
    await installFromDebian('chromium', { advice: 'install chromium yourself' });
  }
  const found = find();
  if (found === undefined)
    process.stderr.write('Skipped: tests of the playground, since Chromium is missing (apt-get install chromium).\n');
  return found;
}

export function openChromium(executablePath: string): Promise<Browser> {
  // Root has no sandbox; and a container's shared memory is often too small.
  return chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'] });
}

function find(): string | undefined {
  const folders = (process.env.PATH ?? '').split(delimiter).filter(Boolean);
  return PROGRAMS.flatMap(program => folders.map(folder => join(folder, program))).find(path => {
    try {
      accessSync(path, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
