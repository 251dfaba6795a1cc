/** CacheRoot: the folder for downloads and prepared models, outside the repository: $XDG_CACHE_HOME/sluice, else ~/.cache/sluice. */
import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';

/** The XDG specification says that a relative path is to be ignored. */
export function defaultCacheRoot(environment: Readonly<Record<string, string | undefined>> = process.env): string {
  const base = environment.XDG_CACHE_HOME;
  return join(base !== undefined && isAbsolute(base) ? base : join(homedir(), '.cache'), 'sluice');
}
