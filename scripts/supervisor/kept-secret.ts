/** KeptSecret: a secret that is made once a data folder and is the same at every start; its file is for its owner only. */
import { randomBytes } from 'node:crypto';
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** 24 random bytes behind the prefix, 32 letters. */
export function keptSecret(folder: string, name: string, prefix: string): string {
  const path = join(folder, name);
  try {
    const kept = readFileSync(path, 'utf8').trim();
    if (kept.startsWith(prefix) && /^[A-Za-z0-9_-]{32}$/.test(kept.slice(prefix.length))) return kept;
  } catch {
    // The first start.
  }
  const secret = `${prefix}${randomBytes(24).toString('base64url')}`;
  writeFileSync(path, `${secret}\n`, { mode: 0o600 });
  chmodSync(path, 0o600);
  return secret;
}
