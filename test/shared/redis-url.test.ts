/** RedisUrl: what each form means, and that a mistake is told without the secret in it. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseRedisUrl, redisLabel } from '../../shared/redis-url.ts';

describe('a Redis', () => {
  it.each([
    ['redis://localhost', { host: 'localhost', port: 6379, db: 0 }, 'redis://localhost:6379'],
    ['redis://10.0.0.7:7000/3', { host: '10.0.0.7', port: 7000, db: 3 }, 'redis://10.0.0.7:7000/3'],
    ['redis://[fd00::1]:7000/', { host: 'fd00::1', port: 7000, db: 0 }, 'redis://[fd00::1]:7000'],
    ['redis://:p%40ss@r.example', { host: 'r.example', port: 6379, db: 0, password: 'p@ss' }, 'redis://r.example:6379'],
    [
      'rediss://sluice:s3cret@r.example:6380',
      { host: 'r.example', port: 6380, db: 0, username: 'sluice', password: 's3cret', tls: {} },
      'rediss://r.example:6380',
    ],
  ])('%s', (url, address, label) => {
    expect(parseRedisUrl(url)).toEqual(address);
    expect(redisLabel(url)).toBe(label);
  });
});

describe('sentinels', () => {
  it.each([
    [
      'redis+sentinel://s1,s2:26380/main',
      {
        sentinels: [
          { host: 's1', port: 26379 },
          { host: 's2', port: 26380 },
        ],
        name: 'main',
        db: 0,
        failoverDetector: true,
      },
      'redis+sentinel://s1:26379,s2:26380/main',
    ],
    [
      'rediss+sentinel://u:p@s1/main/2?sentinel_username=w&sentinel_password=a%26b',
      {
        ...{ sentinels: [{ host: 's1', port: 26379 }], name: 'main', db: 2, username: 'u', password: 'p', tls: {} },
        ...{ failoverDetector: true, sentinelUsername: 'w', sentinelPassword: 'a&b', sentinelTLS: {}, enableTLSForSentinelMode: true },
      },
      'rediss+sentinel://s1:26379/main/2',
    ],
  ])('%s', (url, address, label) => {
    expect(parseRedisUrl(url)).toEqual(address);
    expect(redisLabel(url)).toBe(label);
  });
});

describe('a cluster', () => {
  it.each([
    [
      'redis+cluster://n1,n2:7001',
      {
        nodes: [
          { host: 'n1', port: 6379 },
          { host: 'n2', port: 7001 },
        ],
        db: 0,
      },
      'redis+cluster://n1:6379,n2:7001',
    ],
    [
      'rediss+cluster://u:p%40@[fd00::1]:7000/',
      { nodes: [{ host: 'fd00::1', port: 7000 }], db: 0, username: 'u', password: 'p@', tls: {} },
      'rediss+cluster://[fd00::1]:7000',
    ],
  ])('%s', (url, address, label) => {
    expect(parseRedisUrl(url)).toEqual(address);
    expect(redisLabel(url)).toBe(label);
  });
});

describe('what is none', () => {
  it.each([
    ...['', 'localhost:6379', 'http://localhost', 'redis://', 'redis://s3cret@', 'redis://host:0', 'redis://host:70000', 'redis://a,b'],
    ...['redis://host/x', 'redis://host/1/2', 'redis+sentinel://host', 'redis+sentinel://host/', 'redis+sentinel://host/m/1/2'],
    ...['redis+cluster://n1/1', 'redis+cluster://n1,', 'redis+cluster://u:s3cret@n1/main'],
    ...['redis://u:s3cret%@host', 'redis://u:s3cret@host:port', 'redis://u:s3cret@ho st', 'redis://[::1'],
  ])('%j', url => {
    expect(() => parseRedisUrl(url)).toThrow();
    expect(() => parseRedisUrl(url)).not.toThrow(/s3cret/);
  });

  it('whatever is given, there is an address or a sentence, soon', () => {
    fc.assert(
      fc.property(
        fc.string({ maxLength: 60 }),
        fc.constantFrom('', 'redis://', 'rediss+sentinel://', 'redis+cluster://', 'redis://:s3cret@'),
        (text, start) => {
          try {
            parseRedisUrl(start + text);
          } catch (error) {
            expect((error as Error).message).not.toContain('s3cret');
          }
        },
      ),
      { numRuns: 2000 },
    );
  });
});
