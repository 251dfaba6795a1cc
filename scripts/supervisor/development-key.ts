/** DevelopmentKey: the one key of a self-started gateway; made once a data folder, then the same at every start. */
import { randomBytes } from 'node:crypto';
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const FORM = /^sk-sluice-dev-[A-Za-z0-9_-]{32}$/;

export function developmentKey(folder: string): string {
  const path = join(folder, 'development-key');
  try {
    const kept = readFileSync(path, 'utf8').trim();
    if (FORM.test(kept)) return kept;
  } catch {
    // The first start.
  }
  const key = `sk-sluice-dev-${randomBytes(24).toString('base64url')}`;
  writeFileSync(path, `${key}\n`, { mode: 0o600 });
  chmodSync(path, 0o600);
  return key;
}
