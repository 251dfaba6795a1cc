/**
 * SecureRedis: a Redis as a careful operator has it: reachable through TLS only, under a certificate of a home-made authority, by one user
 * who may do what Sluice needs and no more. The default user is off.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import { startChild } from './child.ts';
import { freePort } from './free-port.ts';

const openssl = (args: readonly string[], folder: string) => promisify(execFile)('openssl', args, { cwd: folder });

/** What docs/deploying.md tells operators to write; Redis checks it at every command. */
export const SLUICE_ACL = '~sluice:* +@all -@admin -@dangerous +info';

export interface SecureRedis {
  host: string;
  port: number;
  user: string;
  password: string;
  url: string;
  /** PEM file of the authority. */
  authorityPath: string;
  /** A connection of that user. */
  redis: Redis;
  stop(): Promise<void>;
}

/** `openssl` and `redis-server` must be installed. */
export async function startSecureRedis(): Promise<SecureRedis> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-secure-redis-'));
  await makeCertificates(folder);
  const port = await freePort();
  // What a URL must escape.
  const [user, password] = ['sluice', 'p@ss:w/rd%'];
  await writeFile(join(folder, 'users.acl'), `user default off\nuser ${user} on >${password} ${SLUICE_ACL}\n`, { mode: 0o600 });
  const host = 'localhost';
  const url = `rediss://${user}:${encodeURIComponent(password)}@${host}:${port}`;
  const child = startChild('redis-server', [
    ...['--port', '0', '--tls-port', String(port), '--bind', '127.0.0.1', '--dir', folder, '--save', ''],
    ...['--tls-cert-file', join(folder, 'server.pem'), '--tls-key-file', join(folder, 'server.key')],
    ...['--tls-ca-cert-file', join(folder, 'authority.pem'), '--tls-auth-clients', 'no', '--aclfile', join(folder, 'users.acl')],
  ]);
  const redis = new Redis(url, { tls: { rejectUnauthorized: false }, retryStrategy: () => 50, maxRetriesPerRequest: null });
  redis.on('error', () => undefined);
  await child.until(() => redis.ping());
  return {
    ...{ host, port, user, password, url, redis, authorityPath: join(folder, 'authority.pem') },
    async stop() {
      redis.disconnect();
      await child.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** `authority.pem`, and `server.pem` and `server.key` of this machine by its name and its address. `openssl` must be installed. */
export async function makeCertificates(folder: string): Promise<void> {
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  await openssl(['req', '-x509', ...key, '-subj', '/CN=Test authority', '-keyout', 'authority.key', '-out', 'authority.pem'], folder);
  await openssl(['req', ...key.slice(0, -2), '-subj', '/CN=localhost', '-keyout', 'server.key', '-out', 'server.csr'], folder);
  await writeFile(join(folder, 'server.ext'), 'subjectAltName=DNS:localhost,IP:127.0.0.1\n');
  const signing = ['-CA', 'authority.pem', '-CAkey', 'authority.key', '-CAcreateserial', '-extfile', 'server.ext'];
  await openssl(['x509', '-req', '-in', 'server.csr', ...signing, '-days', '2', '-out', 'server.pem'], folder);
}
