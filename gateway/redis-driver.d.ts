/**
 * RedisDriver: what the gateway uses of ioredis and BullMQ, and no more. The packages' own declarations refer to Node's types, which
 * would put Node's globals within reach of the whole room; through this file the compiler never opens them.
 */

import type { clusterOptions } from '../shared/redis-cluster.ts';
import type { HostAndPort, ServerAddress } from '../shared/redis-url.ts';

export interface RedisOptions {
  connectionName: string;
  connectTimeout: number;
  /** Whether commands given while there is no connection wait for one. */
  enableOfflineQueue: boolean;
  /** Times a command survives a lost connection; null means always. */
  maxRetriesPerRequest: number | null;
  retryStrategy(attempt: number): number;
  /** Asked about each error that Redis answers: 2 connects anew and gives the command once more. */
  reconnectOnError(error: Error): false | 2;
}

export interface ClusterOptions extends ReturnType<typeof clusterOptions> {
  clusterRetryStrategy(attempt: number): number;
  /** Times a command is sent anew: to whoever has its key now, or after a while, when nobody has. */
  maxRedirections: number;
}

interface Socket {
  cork(): void;
  uncork(): void;
}

/** [key, [entry id, [field, value, …]][]] for each stream that has something. */
export type StreamReply = [string, [string, string[]][]][];

/** Commands that are sent together; each is answered for itself. */
export interface Pipeline {
  get(key: string): Pipeline;
  set(key: string, value: string, unit: 'PX', lifetimeMs: number): Pipeline;
  del(key: string): Pipeline;
  exists(key: string): Pipeline;
  pexpire(key: string, lifetimeMs: number): Pipeline;
  hset(key: string, ...fieldsAndValues: string[]): Pipeline;
  hdel(key: string, ...fields: string[]): Pipeline;
  xrange(key: string, from: string, to: string): Pipeline;
  zcard(key: string): Pipeline;
  zrank(key: string, member: string): Pipeline;
  eval(script: string, keyCount: number, ...keysAndArguments: (string | number)[]): Pipeline;
  exec(): Promise<[Error | null, unknown][] | null>;
}

/** What both kinds of client do. */
declare abstract class Client {
  readonly status: string;
  on(event: 'ready' | 'close' | 'end', listener: () => void): this;
  on(event: 'error', listener: (error: Error) => void): this;
  off(event: 'ready', listener: () => void): this;
  /** With true it connects again at once. */
  disconnect(reconnect?: boolean): void;
  ping(): Promise<string>;
  get(key: string): Promise<string | null>;
  set(key: string, value: string, unit: 'PX', lifetimeMs: number): Promise<unknown>;
  /** `OK`, or null where the key was there before. */
  set(key: string, value: string, unit: 'PX', lifetimeMs: number, condition: 'NX'): Promise<string | null>;
  exists(key: string): Promise<number>;
  smembers(key: string): Promise<string[]>;
  zrange(key: string, first: number, last: number): Promise<string[]>;
  lrange(key: string, first: number, last: number): Promise<string[]>;
  hget(key: string, field: string): Promise<string | null>;
  eval(script: string, keyCount: number, ...keysAndArguments: (string | number)[]): Promise<unknown>;
  evalsha(digest: string, keyCount: number, ...keysAndArguments: (string | number)[]): Promise<unknown>;
  hgetall(key: string): Promise<Record<string, string>>;
  hdel(key: string, ...fields: string[]): Promise<number>;
  xread(...args: (string | number)[]): Promise<StreamReply | null>;
  xrange(key: string, from: string, to: string): Promise<[string, string[]][]>;
  xrange(key: string, from: string, to: string, count: 'COUNT', limit: number): Promise<[string, string[]][]>;
  xrevrange(key: string, from: string, to: string, count: 'COUNT', limit: number): Promise<[string, string[]][]>;
  pipeline(): Pipeline;
}

export declare class Redis extends Client {
  constructor(options: ServerAddress & RedisOptions);
  /** Its socket, while it has one. */
  readonly stream?: Socket;
}

export declare class Cluster extends Client {
  constructor(nodes: readonly HostAndPort[], options: ClusterOptions);
  readonly isCluster: true;
  /** The connections that it has at the moment. */
  nodes(): Redis[];
}

export type RedisClient = Redis | Cluster;

export interface QueueOptions {
  connection: RedisClient;
  prefix: string;
  /** Bounds BullMQ's own stream of queue events, which nothing here reads. */
  streams: { events: { maxLen: number } };
}

/**
 * The script by which BullMQ puts a job with a priority on its queue.
 *
 * KEYS[1..9]  the queue's structures: marker, meta, id, prioritized, delayed, completed, active, events, pc
 *
 * ARGV[1]  prefix of the names, id, name and time in ms of the job, packed
 * ARGV[2]  the job in JSON
 * ARGV[3]  its options, packed
 */
export declare const addPrioritizedJob: { content: string; keys: 9 };

export declare class Queue {
  constructor(name: string, options: QueueOptions);
  on(event: 'error', listener: (error: Error) => void): this;
  /** 1 when the job is gone; 0 when it is not there or a batcher has it. */
  remove(jobId: string): Promise<number>;
  /** Lets go of the connection, which is not its own. */
  close(): Promise<void>;
  /** Redis name of one of the queue's structures. */
  toKey(type: string): string;
}
