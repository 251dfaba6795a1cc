/** RedisBinary: the Redis or Valkey server of this machine; on Debian, as root, installed when there is none. */
import { spawnSync } from 'node:child_process';
import { delimiter, join } from 'node:path';
import { canInstallFromDebian, installFromDebian } from './debian-package.ts';
import { isExecutable } from './executable.ts';
import { StartError } from './start-error.ts';

const PROGRAMS = ['redis-server', 'valkey-server'];
/** Not on everybody's PATH. */
const FURTHER_FOLDERS = ['/usr/bin', '/usr/sbin', '/usr/local/bin', '/opt/homebrew/bin'];
/** BullMQ's scripts and XADD's MINID need it. */
const OLDEST_VERSION = '6.2';

/** Path of a server that is new enough; `say` tells of an installation. Throws a StartError that says what to do. */
export async function ensureRedisBinary(say: (line: string) => void, signal?: AbortSignal): Promise<string> {
  const found = findRedisBinary();
  if (found !== undefined) return found;
  if (!canInstallFromDebian()) {
    throw new StartError(
      'Redis is missing. Install redis-server or valkey-server (on Debian and Ubuntu: sudo apt-get install redis-server; on macOS: brew install redis), ' +
        'or name a running one with --redis or REDIS_URL.',
    );
  }
  say('Installing redis-server from Debian (once) …');
  await installFromDebian('redis-server', { advice: 'install redis-server yourself, or name a running one with --redis', signal });
  const installed = findRedisBinary();
  if (installed === undefined) throw new StartError('redis-server was installed but is not on the PATH.');
  return installed;
}

/** Undefined when the machine has none; throws when the only one is too old. */
export function findRedisBinary(path = process.env.PATH ?? ''): string | undefined {
  let tooOld: string | undefined;
  for (const program of PROGRAMS) {
    for (const folder of [...path.split(delimiter).filter(Boolean), ...FURTHER_FOLDERS]) {
      const binary = join(folder, program);
      if (!isExecutable(binary)) continue;
      const version = /v=(\d+\.\d+)/.exec(spawnSync(binary, ['--version'], { encoding: 'utf8' }).stdout ?? '')?.[1];
      if (version !== undefined && isNewEnough(version)) return binary;
      tooOld ??= `${binary} is version ${version ?? 'unknown'}`;
    }
  }
  if (tooOld !== undefined) throw new StartError(`${tooOld}; Sluice needs Redis ${OLDEST_VERSION} or Valkey.`);
  return undefined;
}

export function isNewEnough(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [oldestMajor = 0, oldestMinor = 0] = OLDEST_VERSION.split('.').map(Number);
  return major > oldestMajor || (major === oldestMajor && minor >= oldestMinor);
}
