/** DebianPackage: installs packages of Debian where we may; never starts a service of theirs. */
import { spawn } from 'node:child_process';
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { StartError } from './start-error.ts';

const POLICY = '/usr/sbin/policy-rc.d';

export function canInstallFromDebian(): boolean {
  return existsSync('/etc/debian_version') && process.getuid?.() === 0;
}

/** `advice` says what a person can do when it fails. Throws a StartError. */
export async function installFromDebian(
  name: string,
  { advice, signal }: { advice: string; signal?: AbortSignal | undefined },
): Promise<void> {
  // The package may start a service of its own, as redis-server does on port 6379. Debian's switch against that is this file; a container
  // often has it already.
  const placed = !existsSync(POLICY);
  try {
    if (placed) writeFileSync(POLICY, '#!/bin/sh\nexit 101\n', { mode: 0o755 });
    await apt(['update', '-q'], { advice, signal });
    await apt(['install', '-q', '-y', '--no-install-recommends', name], { advice, signal });
  } finally {
    if (placed) rmSync(POLICY, { force: true });
  }
}

function apt(args: string[], { advice, signal }: { advice: string; signal: AbortSignal | undefined }): Promise<void> {
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
      reject(new StartError(`apt-get ${args[0]} failed; ${advice}.\n  ${last}`));
    });
  });
}
