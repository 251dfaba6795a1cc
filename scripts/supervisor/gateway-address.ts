/** GatewayAddress: where the gateway of a data folder answers, written down by `npm start` and read by `npx sluice`. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const FILE = 'gateway-url';

export function writeGatewayAddress(folder: string, url: string): void {
  writeFileSync(join(folder, FILE), `${url}\n`);
}

/** Undefined where none has been started; it may have been stopped since. */
export function readGatewayAddress(folder: string): string | undefined {
  try {
    return readFileSync(join(folder, FILE), 'utf8').trim() || undefined;
  } catch {
    return undefined;
  }
}
