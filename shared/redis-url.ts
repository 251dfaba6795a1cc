/**
 * RedisUrl: where Redis is, as one line of text, for gateway, batcher and start alike:
 *
 *   redis://[user:password@]host[:port][/database]
 *   redis+sentinel://[user:password@]host[:port][,host[:port]…]/master[/database][?sentinel_username=…&sentinel_password=…]
 *   redis+cluster://[user:password@]host[:port][,host[:port]…]
 *
 * and all with rediss for TLS. The second names sentinels, which know where the master of that name is at the moment; the third some nodes of a
 * cluster, which know all others. User, password and the values behind the question mark are percent-encoded where they hold other than letters and
 * digits. The result is what ioredis takes.
 */

export interface HostAndPort {
  host: string;
  port: number;
}

interface Login {
  db: number;
  username?: string;
  password?: string;
  tls?: object;
}

/** One server at a time answers. */
export type ServerAddress = Login &
  (
    | HostAndPort
    | {
        sentinels: HostAndPort[];
        name: string;
        sentinelUsername?: string;
        sentinelPassword?: string;
        /** Told by the sentinels of a new master, not only by the old one's end: for seconds it may go on, and what it takes then is lost. */
        failoverDetector: true;
        sentinelTLS?: object;
        enableTLSForSentinelMode?: boolean;
      }
  );

/** Masters that share the keys among them, and their replicas. */
export interface ClusterAddress extends Login {
  nodes: HostAndPort[];
}

export type RedisAddress = ServerAddress | ClusterAddress;

const FORM = /^(rediss?)(\+sentinel|\+cluster)?:\/\/(?:([^:@/?]*)(?::([^@/?]*))?@)?([^/?\s@]+)((?:\/[^/?\s]*)*)(?:\?([^\s]*))?$/;
const HOST = /^(?:\[([0-9a-fA-F:.]+)\]|([^:,[\]]+))(?::(\d{1,5}))?$/;
const PORT = 6379;
const SENTINEL_PORT = 26_379;

/** Throws an Error whose message says what is wrong and holds nothing of the text, which may hold a password. */
export function parseRedisUrl(url: string): RedisAddress {
  const match = FORM.exec(url);
  if (match === null) throw new Error('it must look like redis://[user:password@]host:port/database, or begin with rediss:// for TLS');
  const [, scheme, kind, username, password, hosts, path, query] = match;
  const parts = path!.split('/').slice(1);
  const isTls = scheme === 'rediss';
  const login = (database: string | undefined): Login => ({
    db: databaseOf(database),
    ...(username ? { username: decoded(username) } : {}),
    ...(password ? { password: decoded(password) } : {}),
    ...(isTls && { tls: {} }),
  });
  if (kind === '+cluster') {
    if (parts.some(part => part !== '')) throw new Error('a cluster has no databases: nothing may stand behind its hosts');
    return { nodes: hosts!.split(',').map(host => hostAndPort(host, PORT)), ...login(undefined) };
  }
  if (kind === undefined) {
    if (parts.length > 1) throw new Error('only a database number may stand behind the host');
    return { ...hostAndPort(hosts!, PORT), ...login(parts[0]) };
  }
  const [name, database, ...rest] = parts;
  if (!name || rest.length > 0)
    throw new Error("behind the sentinels must stand the master's name, as in redis+sentinel://host:26379/mymaster");
  const given = new Map((query ?? '').split('&').map(pair => pair.split('=', 2) as [string, string | undefined]));
  const sentinelUsername = given.get('sentinel_username');
  const sentinelPassword = given.get('sentinel_password');
  return {
    sentinels: hosts!.split(',').map(host => hostAndPort(host, SENTINEL_PORT)),
    name: decoded(name),
    failoverDetector: true,
    ...login(database),
    ...(sentinelUsername ? { sentinelUsername: decoded(sentinelUsername) } : {}),
    ...(sentinelPassword ? { sentinelPassword: decoded(sentinelPassword) } : {}),
    ...(isTls && { sentinelTLS: {}, enableTLSForSentinelMode: true }),
  };
}

/** The same without user, password and query: fit for logs. */
export function redisLabel(url: string): string {
  const address = parseRedisUrl(url);
  const scheme = address.tls === undefined ? 'redis' : 'rediss';
  const database = address.db === 0 ? '' : `/${address.db}`;
  if ('nodes' in address) return `${scheme}+cluster://${address.nodes.map(hostText).join(',')}`;
  if (!('sentinels' in address)) return `${scheme}://${hostText(address)}${database}`;
  return `${scheme}+sentinel://${address.sentinels.map(hostText).join(',')}/${address.name}${database}`;
}

function hostText({ host, port }: HostAndPort): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}

/** An IPv6 address stands in brackets. */
function hostAndPort(text: string, defaultPort: number): HostAndPort {
  const match = HOST.exec(text);
  const port = Number(match?.[3] ?? defaultPort);
  if (match === null || port < 1 || port > 65_535) throw new Error('it names no host and port such as redis.example:6379');
  return { host: match[1] ?? match[2]!, port };
}

function databaseOf(text: string | undefined): number {
  if (text === undefined || text === '') return 0;
  if (!/^\d{1,4}$/.test(text)) throw new Error('the database must be a number');
  return Number(text);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Error('user and password must be percent-encoded');
  }
}
