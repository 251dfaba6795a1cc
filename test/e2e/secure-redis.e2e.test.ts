/** A Redis through TLS, under a home-made authority, for a user of few rights: gateway and batcher, from a request to its answer. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { debianProgram } from '../debian-program.ts';
import { startGateway } from '../gateway-server.ts';
import { RedisCluster } from '../redis-cluster.ts';
import { StartProcess } from '../scripts/start-process.ts';
import { makeCertificates, type SecureRedis, SLUICE_ACL, startSecureRedis } from '../secure-redis.ts';

const openssl = await debianProgram('openssl');
let secure: SecureRedis;
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sluice-secure-'));
  if (openssl !== undefined) secure = await startSecureRedis();
});
afterAll(async () => {
  await secure?.stop();
  await rm(folder, { recursive: true, force: true });
});

const npmStart = (url: string, environment: NodeJS.ProcessEnv = {}) =>
  new StartProcess({ args: ['--data', join(folder, 'data')], environment: { REDIS_URL: url, ...environment } });

/** Once it is ready: a stream, whole. */
async function answer(start: StartProcess): Promise<string> {
  const url = await start.says(/Ready at (http\S+)/);
  const key = await start.says(/(sk-sluice-dev-\S+)/);
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      ...{ model: 'default', temperature: 0, stream: true },
      messages: [{ role: 'user', content: 'What is the capital of France? Answer in one sentence.' }],
    }),
  });
  return await response.text();
}

describe.skipIf(openssl === undefined)('a Redis behind TLS', () => {
  it('serves gateway and batcher as the user that the address names', async () => {
    const start = npmStart(secure.url, { NODE_EXTRA_CA_CERTS: secure.authorityPath });
    try {
      expect(await answer(start)).toMatch(/Paris[\s\S]*data: \[DONE\]\n\n$/);
      expect(start.output).toContain(`rediss://${secure.host}:${secure.port}\n`);
      expect(start.output).not.toContain(encodeURIComponent(secure.password));
      // No command was one that the user may not give.
      expect(await secure.redis.info('errorstats')).not.toContain('NOPERM');
    } finally {
      await start.stop();
    }
  });

  it('serves them as a cluster too', async () => {
    const certificates = await mkdtemp(join(folder, 'certificates-'));
    await makeCertificates(certificates);
    const cluster = await RedisCluster.start({ certificates });
    const login = { user: 'sluice', password: 'p@ss:w/rd%' };
    await cluster.setUser(login.user, 'on', `>${login.password}`, ...SLUICE_ACL.split(' '));
    const start = npmStart(cluster.urlOf(login), { NODE_EXTRA_CA_CERTS: join(certificates, 'authority.pem') });
    try {
      expect(await answer(start)).toMatch(/Paris[\s\S]*data: \[DONE\]\n\n$/);
      expect(start.output).toContain('rediss+cluster://localhost:');
      expect(start.output).not.toContain(encodeURIComponent(login.password));
      expect(await cluster.denials()).toEqual([]);
    } finally {
      await start.stop();
      await cluster.stop();
    }
  });

  it('is refused with a sentence when nobody vouches for its certificate', async () => {
    const start = npmStart(secure.url);
    expect(await start.ended).toBe(2);
    expect(start.output).toMatch(
      /error: The certificate of Redis at rediss:\/\/localhost:\d+ is not trusted \(\w+\)\. Name a file .* NODE_EXTRA_CA_CERTS\./,
    );
  });

  it('is refused with a sentence when the password is wrong', async () => {
    const wrong = npmStart(secure.url.replace(/:[^:@]+@/, ':wrong@'), { NODE_EXTRA_CA_CERTS: secure.authorityPath });
    expect(await wrong.ended).toBe(2);
    expect(wrong.output).toContain('refuses the user or password of the address');
  });

  it('a file of certificates that holds none is refused with a sentence', async () => {
    const start = new StartProcess({ args: ['--data', join(folder, 'data')], environment: { NODE_EXTRA_CA_CERTS: '/dev/null' } });
    expect(await start.ended).toBe(2);
    expect(start.output).toContain('error: NODE_EXTRA_CA_CERTS names /dev/null, which holds no certificate in PEM form.');
  });

  it('a gateway without the authority does not talk to it', async () => {
    const gateway = await startGateway({ redisUrl: secure.url });
    try {
      expect((await fetch(`${gateway.url}/ready`)).status).toBe(503);
      expect(gateway.output()).toMatch(/certificate/i);
    } finally {
      await gateway.stop();
    }
  });
});
