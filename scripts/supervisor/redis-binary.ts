/** RedisBinary: the Redis or Valkey server of this machine; on Debian, as root, installed when there is none. Never starts the package's service. */
import { spawn, spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, rmSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { StartError } from './start-error.ts';

const PROGRAMS = ['redis-server', 'valkey-server'];
/** Not on everybody's PATH. */
const FURTHER_FOLDERS = ['/usr/bin', '/usr/sbin', '/usr/local/bin', '/opt/homebrew/bin'];
/** BullMQ's scripts and XADD's MINID need it. */
const OLDEST_VERSION = '6.2';
const POLICY = '/usr/sbin/policy-rc.d';

/** Path of a server that is new enough; `say` tells of an installation. Throws a StartError that says what to do. */
export async function ensureRedisBinary(say: (line: string) => void, signal?: AbortSignal): Promise<string> {
  const found = findRedisBinary();
  if (found !== undefined) return found;
  if (!existsSync('/etc/debian_version') || process.getuid?.() !== 0) {
    throw new StartError(
      'Redis is missing. Install redis-server or valkey-server (on Debian and Ubuntu: sudo apt-get install redis-server; on macOS: brew install redis), ' +
        'or name a running one with --redis or REDIS_URL.',
    );
  }
  say('Installing redis-server from Debian (once) …');
  await installFromDebian(signal);
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

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

async function installFromDebian(signal: AbortSignal | undefined): Promise<void> {
  // The package would start a Redis of its own on port 6379. Debian's switch against that is this file; a container often has it already.
  const placed = !existsSync(POLICY);
  try {
    if (placed) writeFileSync(POLICY, '#!/bin/sh\nexit 101\n', { mode: 0o755 });
    await apt(['update', '-q'], signal);
    await apt(['install', '-q', '-y', '--no-install-recommends', 'redis-server'], signal);
  } finally {
    if (placed) rmSync(POLICY, { force: true });
  }
}

function apt(args: string[], signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn('apt-get', ['-o', 'DPkg::Lock::Timeout=300', ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      ...(signal !== undefined && { signal }),
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    });
    let output = '';
    const keep = (bytes: Buffer) => {
      output = (output + bytes.toString()).slice(-4_000);
    };
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    child.once('error', error => reject(signal?.aborted ? signal.reason : new StartError(`apt-get cannot be run: ${error.message}`)));
    child.once('close', code => {
      if (code === 0) return resolve();
      const last = output.trim().split('\n').slice(-5).join('\n  ');
      reject(new StartError(`apt-get ${args[0]} failed; install redis-server yourself, or name a running one with --redis.\n  ${last}`));
    });
  });
}
