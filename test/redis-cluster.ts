/** RedisCluster: six private nodes on this machine for one test file, three masters with a replica each, and what an operator or a fault does to them. */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { type Child, startChild } from './child.ts';
import { freePort } from './free-port.ts';

/** A node that is silent for so long is gone, as the others see it. */
const NODE_TIMEOUT_MS = 1_500;
const MASTERS = 3;
const SLOTS = 16_384;
const POLL_MS = 50;
/** The nodes' own connections to each other are on a port that is so much higher. */
const BUS = 10_000;
const MAX_PORT = 65_535;
/** Of the machine, in certificates. */
const NAME = 'localhost';

/** It may be started again after its end, on the same port with what it had stored. */
export interface ClusterNode {
  readonly port: number;
  /** Of this node alone. */
  readonly redis: Redis;
  start(): Promise<void>;
  kill(): Promise<void>;
  readonly isRunning: boolean;
}

export class RedisCluster {
  readonly #folder: string;
  readonly #nodes: readonly Node[];
  readonly #isSecure: boolean;

  private constructor(folder: string, nodes: readonly Node[], isSecure: boolean) {
    this.#folder = folder;
    this.#nodes = nodes;
    this.#isSecure = isSecure;
  }

  /**
   * `redis-server` must be installed. What a node has taken survives its SIGKILL. With a folder of what makeCertificates makes it is reached through
   * TLS only, and its nodes tell their names.
   */
  static async start({ certificates }: { certificates?: string } = {}): Promise<RedisCluster> {
    const folder = await mkdtemp(join(tmpdir(), 'sluice-redis-cluster-'));
    const nodes: Node[] = [];
    const cluster = new RedisCluster(folder, nodes, certificates !== undefined);
    try {
      for (let index = 0; index < 2 * MASTERS; index++) nodes.push(await Node.open(join(folder, String(index)), certificates));
      await cluster.#join();
    } catch (thrown) {
      await cluster.stop();
      throw thrown;
    }
    return cluster;
  }

  async #join(): Promise<void> {
    const masters = this.#nodes.slice(0, MASTERS);
    for (const [index, { redis }] of masters.entries()) {
      const first = Math.floor((index * SLOTS) / MASTERS);
      const end = Math.floor(((index + 1) * SLOTS) / MASTERS);
      await redis.call('CLUSTER', 'ADDSLOTS', ...Array.from({ length: end - first }, (_, slot) => String(first + slot)));
      await redis.call('CLUSTER', 'SET-CONFIG-EPOCH', index + 1);
    }
    for (const { port } of this.#nodes.slice(1)) await this.#nodes[0]!.redis.call('CLUSTER', 'MEET', '127.0.0.1', port);
    for (const [index, { redis }] of this.#nodes.slice(MASTERS).entries()) {
      const masterId = await idOf(masters[index]!);
      await until('a replica knows its master', async () => (await redis.call('CLUSTER', 'REPLICATE', masterId)) === 'OK');
    }
    await this.whole();
  }

  get url(): string {
    return this.urlOf();
  }

  /** For a user of it. */
  urlOf(login?: { user: string; password: string }): string {
    const [scheme, host] = this.#isSecure ? ['rediss', NAME] : ['redis', '127.0.0.1'];
    const before = login === undefined ? '' : `${login.user}:${encodeURIComponent(login.password)}@`;
    return `${scheme}+cluster://${before}${this.#nodes.map(({ port }) => `${host}:${port}`).join(',')}`;
  }

  /** On every node, as ACL SETUSER takes it. */
  async setUser(...words: string[]): Promise<void> {
    for (const { redis } of this.#nodes) await redis.call('ACL', 'SETUSER', ...words);
  }

  /** What users were refused, by all nodes. */
  async denials(): Promise<string[]> {
    const logs = await Promise.all(this.#running.map(({ redis }) => redis.call('ACL', 'LOG')));
    return (logs as unknown[][][]).flat().map(entry => entry.join(' '));
  }

  get #running(): readonly Node[] {
    return this.#nodes.filter(node => node.isRunning);
  }

  /** Who has a key, master first, as one of the nodes sees it; only those that it believes to be there. */
  async #ownersOf(key: string, seenBy: Node): Promise<Node[]> {
    const slot = await this.slotOf(key);
    const ranges = (await seenBy.redis.call('CLUSTER', 'SLOTS')) as [number, number, ...[string, number][]][];
    const [, , ...owners] = ranges.find(([first, last]) => first <= slot && slot <= last) ?? [0, 0];
    return owners.flatMap(([, port]) => this.#nodes.find(node => node.port === port) ?? []);
  }

  async slotOf(key: string): Promise<number> {
    return Number(await this.#running[0]!.redis.call('CLUSTER', 'KEYSLOT', key));
  }

  async masterOf(key: string): Promise<ClusterNode> {
    return (await this.#ownersOf(key, this.#running[0]!))[0]!;
  }

  /** All that the masters have. */
  async keys(pattern: string): Promise<string[]> {
    const found = await Promise.all(this.#running.map(({ redis }) => redis.keys(pattern)));
    return [...new Set(found.flat())];
  }

  /** Resolves when all nodes are there, and each sees all slots with a replica that is in step. */
  async whole(): Promise<void> {
    await until('the cluster is whole', async () => {
      for (const node of this.#nodes) {
        if (!String(await node.redis.call('CLUSTER', 'INFO')).includes('cluster_state:ok')) return false;
        const ranges = (await node.redis.call('CLUSTER', 'SLOTS')) as unknown[][];
        if (ranges.reduce((sum, [first, last]) => sum + Number(last) - Number(first) + 1, 0) !== SLOTS) return false;
        if (ranges.some(range => range.length !== 4)) return false;
        const replication = await node.redis.info('replication');
        if (!replication.includes('role:master') && !replication.includes('master_link_status:up')) return false;
      }
      return true;
    });
  }

  /** Resharding: the slot of this key, and all keys in it, go to the next master; the slot itself only after `whileOpen`. */
  async moveSlotOf(key: string, whileOpen?: () => Promise<unknown>): Promise<void> {
    const slot = await this.slotOf(key);
    const source = await this.masterOf(key);
    const masters: ClusterNode[] = [];
    for (const node of this.#running) if ((await node.redis.info('replication')).includes('role:master')) masters.push(node);
    const target = masters[(masters.indexOf(source) + 1) % masters.length]!;
    const [sourceId, targetId] = await Promise.all([idOf(source), idOf(target)]);
    await target.redis.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', sourceId);
    await source.redis.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', targetId);
    const moveKeys = async () => {
      const keys = (await source.redis.call('CLUSTER', 'GETKEYSINSLOT', slot, 10)) as string[];
      if (keys.length > 0) await source.redis.call('MIGRATE', '127.0.0.1', target.port, '', 0, 5_000, 'KEYS', ...keys);
      return keys.length;
    };
    while ((await moveKeys()) > 0);
    await whileOpen?.();
    while ((await moveKeys()) > 0);
    for (const { redis } of [target, ...masters.filter(node => node !== target)])
      await redis.call('CLUSTER', 'SETSLOT', slot, 'NODE', targetId);
  }

  /** As an operator does before maintenance: the replica of the key's master takes its place, and nothing is lost. */
  async exchangeMasterOf(key: string): Promise<void> {
    await this.whole();
    const [master, replica] = await this.#ownersOf(key, this.#running[0]!);
    await replica!.redis.call('CLUSTER', 'FAILOVER');
    await this.#promoted(key, master!);
  }

  /** SIGKILL; resolves when its replica has taken its place. */
  async killMasterOf(key: string): Promise<ClusterNode> {
    const master = await this.masterOf(key);
    await master.kill();
    await this.#promoted(key, master);
    return master;
  }

  /** SIGKILL, and its replica may not take its place; resolves when the others know that the key is nowhere. */
  async takeAway(key: string): Promise<ClusterNode> {
    await this.whole();
    const [master, replica] = await this.#ownersOf(key, this.#running[0]!);
    await replica!.redis.config('SET', 'cluster-replica-no-failover', 'yes');
    await master!.kill();
    await until('the cluster is down', async () => {
      const told = await Promise.all(this.#running.map(({ redis }) => redis.call('CLUSTER', 'INFO')));
      return told.every(info => String(info).includes('cluster_state:fail'));
    });
    return master!;
  }

  async #promoted(key: string, before: ClusterNode): Promise<void> {
    await until('a replica is promoted', async () => {
      for (const node of this.#running) {
        const [master] = await this.#ownersOf(key, node);
        if (master === undefined || master === before) return false;
      }
      return true;
    });
  }

  async stop(): Promise<void> {
    await Promise.all(this.#nodes.map(node => node.close()));
    await rm(this.#folder, { recursive: true, force: true });
  }
}

class Node implements ClusterNode {
  readonly port: number;
  readonly redis: Redis;
  readonly #folder: string;
  readonly #certificates: string | undefined;
  #child: Child | undefined;

  private constructor(port: number, folder: string, certificates: string | undefined) {
    this.port = port;
    this.#folder = folder;
    this.#certificates = certificates;
    this.redis = new Redis({
      ...{ host: '127.0.0.1', port, lazyConnect: true, retryStrategy: () => POLL_MS, maxRetriesPerRequest: 20 },
      ...(certificates !== undefined && { tls: { rejectUnauthorized: false } }),
    });
    this.redis.on('error', () => undefined);
  }

  static async open(folder: string, certificates: string | undefined): Promise<Node> {
    await mkdir(folder);
    const node = new Node(await portWithBus(), folder, certificates);
    await node.start();
    return node;
  }

  async start(): Promise<void> {
    const child = startChild('redis-server', [
      ...this.#portArguments(),
      ...['--bind', '127.0.0.1', '--dir', this.#folder, '--save', ''],
      // The system has it before it is answered, which is enough for the end of a process.
      ...['--appendonly', 'yes', '--appendfsync', 'no', '--repl-diskless-sync-delay', '0'],
      ...['--cluster-enabled', 'yes', '--cluster-node-timeout', String(NODE_TIMEOUT_MS), '--cluster-replica-validity-factor', '0'],
    ]);
    this.#child = child;
    await child.until(() => this.redis.ping());
  }

  #portArguments(): string[] {
    const folder = this.#certificates;
    if (folder === undefined) return ['--port', String(this.port)];
    return [
      ...['--port', '0', '--tls-port', String(this.port), '--tls-cluster', 'yes', '--tls-replication', 'yes', '--tls-auth-clients', 'no'],
      ...['--tls-cert-file', join(folder, 'server.pem'), '--tls-key-file', join(folder, 'server.key')],
      ...['--tls-ca-cert-file', join(folder, 'authority.pem')],
      ...['--cluster-announce-hostname', NAME, '--cluster-preferred-endpoint-type', 'hostname'],
    ];
  }

  get isRunning(): boolean {
    return this.#child !== undefined;
  }

  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    child?.kill('SIGKILL');
    await child?.stop();
  }

  async close(): Promise<void> {
    this.redis.disconnect();
    await this.kill();
  }
}

async function idOf({ redis }: ClusterNode): Promise<string> {
  return String(await redis.call('CLUSTER', 'MYID'));
}

async function portWithBus(): Promise<number> {
  for (;;) {
    const port = await freePort();
    if (port + BUS <= MAX_PORT && (await isFree(port + BUS))) return port;
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  return await new Promise(resolve => {
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}

const LIMIT_MS = 30_000;

async function until(what: string, probe: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + LIMIT_MS;
  let failure: unknown;
  while (performance.now() < deadline) {
    try {
      if (await probe()) return;
    } catch (error) {
      failure = error;
    }
    await new Promise(resolve => setTimeout(resolve, POLL_MS));
  }
  throw new Error(`waited in vain until ${what}`, { cause: failure });
}
