import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { CrashReport } from '../../scripts/supervisor/child-process.ts';
import { ensureRedisBinary, isNewEnough } from '../../scripts/supervisor/redis-binary.ts';
import { checkRedis } from '../../scripts/supervisor/redis-elsewhere.ts';
import { type RedisServer, startRedisServer } from '../../scripts/supervisor/redis-server.ts';
import { isAlive, until } from './process-life.ts';

const binary = await ensureRedisBinary(() => {});
let folder: string;
const servers: RedisServer[] = [];
const crashes: CrashReport[] = [];

beforeEach(() => {
  // A folder whose name needs quoting.
  folder = join(mkdtempSync(join(tmpdir(), 'sluice-redis-')), 'a "quoted" folder');
});
afterEach(async () => {
  for (const server of servers.splice(0)) await server.child.stop();
  rmSync(join(folder, '..'), { recursive: true });
  crashes.length = 0;
});

async function start(): Promise<RedisServer> {
  const server = await startRedisServer({ binary, folder, onCrash: report => crashes.push(report) });
  servers.push(server);
  return server;
}

async function withClient<T>(url: string, use: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis(url, { maxRetriesPerRequest: 0, retryStrategy: () => null });
  redis.on('error', () => {});
  try {
    return await use(redis);
  } finally {
    redis.disconnect();
  }
}

describe('a Redis of our own', () => {
  it('wants the password, which neither its arguments nor a readable file shows', async () => {
    const server = await start();
    expect(await withClient(server.url, redis => redis.ping())).toBe('PONG');
    await expect(withClient(`redis://127.0.0.1:${server.port}`, redis => redis.ping())).rejects.toThrow(/NOAUTH/);
    const password = new URL(server.url).password;
    expect(readFileSync(`/proc/${server.child.pid}/cmdline`, 'utf8')).not.toContain(password);
    expect(statSync(join(folder, 'redis.conf')).mode & 0o777).toBe(0o600);
    expect(statSync(folder).mode & 0o777).toBe(0o700);
  });

  it('listens on the loopback interface only, and refuses writes rather than forget', async () => {
    const { url } = await start();
    const settings = await withClient(url, redis => redis.config('GET', 'bind', 'maxmemory-policy', 'appendonly') as Promise<string[]>);
    expect(settings).toEqual(expect.arrayContaining(['127.0.0.1', 'noeviction', 'yes']));
  });

  it('keeps what was written over a stop', async () => {
    const first = await start();
    await withClient(first.url, redis => redis.set('kept', 'yes'));
    await first.child.stop();
    const second = await start();
    expect(await withClient(second.url, redis => redis.get('kept'))).toBe('yes');
  });

  it('that was killed comes back on the same port with the same password', async () => {
    const server = await start();
    await withClient(server.url, redis => redis.set('kept', 'yes'));
    const pid = server.child.pid as number;
    process.kill(pid, 'SIGKILL');
    await until(() => server.child.pid !== undefined && server.child.pid !== pid);
    await until(() =>
      withClient(server.url, redis => redis.get('kept')).then(
        kept => kept === 'yes',
        () => false,
      ),
    );
    expect(crashes.map(crash => crash.how)).toEqual(['SIGKILL']);
  });

  it('that an earlier start left behind is ended first', async () => {
    const stray = await start();
    await withClient(stray.url, redis => redis.set('kept', 'yes'));
    const pid = stray.child.pid as number;
    const server = await start();
    expect(isAlive(pid)).toBe(false);
    expect(await withClient(server.url, redis => redis.get('kept'))).toBe('yes');
    // Its supervisor must not start it again beside the new one.
    await stray.child.stop();
  });

  it('leaves a stranger on the old port alone', async () => {
    const first = await start();
    await first.child.stop();
    let heard = '';
    const stranger = createServer(socket =>
      socket.on('data', bytes => {
        heard += bytes;
        socket.write('-ERR who are you\r\n');
      }),
    );
    await new Promise<void>(resolve => stranger.listen(first.port, '127.0.0.1', resolve));
    await start();
    stranger.close();
    expect(heard).not.toContain('SHUTDOWN');
  });

  it('that cannot start says why', async () => {
    await expect(startRedisServer({ binary: '/bin/false', folder, onCrash: () => {} })).rejects.toThrow(
      /Redis does not start \(exit code 1\)/,
    );
  });

  it('that is not wanted any more is stopped', async () => {
    await expect(
      startRedisServer({ binary, folder, onCrash: () => {}, signal: AbortSignal.abort(new Error('not wanted')) }),
    ).rejects.toThrow(/not wanted/);
  });
});

describe('a Redis elsewhere', () => {
  it('is accepted when it answers', async () => {
    const { url, port } = await start();
    expect(await checkRedis(url)).toBe(`redis://127.0.0.1:${port}`);
  });

  it('that does not answer, refuses the password or is no cluster is named without the password', async () => {
    const { url: server, port } = await start();
    const messages: string[] = [];
    for (const url of [
      `redis://user:s3cret@127.0.0.1:${port}/0`,
      'redis://:s3cret@127.0.0.1:1/3',
      'redis://:s3cret@no-such-host.invalid',
      'redis+cluster://:s3cret@127.0.0.1:1',
      server.replace('redis://', 'redis+cluster://'),
    ]) {
      messages.push(await checkRedis(url).then(String, error => error.message));
    }
    expect(messages[0]).toMatch(/refuses the user or password/);
    expect(messages[1]).toMatch(/^Redis at redis:\/\/127\.0\.0\.1:1\/3 does not answer \(ECONNREFUSED\)/);
    expect(messages[2]).toMatch(/no-such-host\.invalid:6379 does not answer/);
    expect(messages[3]).toMatch(/^Redis at redis\+cluster:\/\/127\.0\.0\.1:1 does not answer/);
    expect(messages[4]).toContain('has cluster support disabled');
    expect(messages.join()).not.toContain('s3cret');
  });

  it('an address that is none is refused, without what stands in it', async () => {
    for (const url of ['not a url', 'http://127.0.0.1:6379', 'redis://', 'redis://user:s3cret@host:99999']) {
      const message = await checkRedis(url).then(String, error => error.message);
      expect(message).toMatch(/^The Redis address cannot be used: /);
      expect(message).not.toContain('s3cret');
    }
  });

  it('must be new enough', () => {
    expect(['5.0', '6.0', '6.2', '7.0', '10.1'].map(isNewEnough)).toEqual([false, false, true, true, true]);
  });
});
