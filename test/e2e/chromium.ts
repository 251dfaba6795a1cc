/** Chromium: the browser that tests of pages run in, without a window. */
import { type Browser, chromium } from 'playwright-core';
import { debianProgram } from '../debian-program.ts';

/** Undefined where there is none and none may be installed: then these tests are skipped. */
export function chromiumPath(): Promise<string | undefined> {
  return debianProgram('chromium', ['chromium', 'chromium-browser', 'google-chrome-stable', 'google-chrome']);
}

export function openChromium(executablePath: string): Promise<Browser> {
  // Root has no sandbox; and a container's shared memory is often too small.
  return chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'] });
}
