/**
 * RedisCluster: what a client of ioredis must do otherwise where Redis is a cluster, for gateway and batcher alike: how it is told of the nodes, what
 * its errors say, and commands that would go to one server together, each sent to the node that has its key.
 */
import type { ClusterAddress } from './redis-url.ts';

/** A node that is gone without a word is heard of from the others. */
const SLOTS_REFRESH_MS = 5_000;

/** Of one connection to a node. */
export interface NodeOptions {
  connectionName?: string;
  connectTimeout?: number;
  commandTimeout?: number;
  maxRetriesPerRequest?: null;
}

export function clusterOptions({ nodes: _, ...login }: ClusterAddress, node: NodeOptions = {}) {
  return {
    // A certificate is for the name, and whoever connects looks that up.
    dnsLookup: (host: string, callback: (error: null, address: string) => void) => callback(null, host),
    slotsRefreshInterval: SLOTS_REFRESH_MS,
    redisOptions: { ...login, ...node },
  };
}

/** A client that gets no answer of any node says just that; from here on its error also says what the last one said. */
export function nameNodeFailure(error: Error & { lastNodeError?: Error }): void {
  if (error.lastNodeError !== undefined) error.message += ` ${error.lastNodeError.message}`;
}

type Word = string | number;
type Answer = [error: Error | null, answer: unknown];

/**
 * In the place of a pipeline, which a cluster takes only where all keys are on one node: each command by itself, so that each follows its own key
 * when that moves. Those of one key go in the order given, the others at the same time. `exec` resolves with [error, answer] of each.
 */
export function singly(client: object): object {
  const commands = client as Record<string, (...words: Word[]) => Promise<unknown>>;
  const given: { name: string; words: Word[] }[] = [];
  const exec = (): Promise<Answer[]> => {
    const lastOfKey = new Map<Word, Promise<unknown>>();
    return Promise.all(
      given.map(({ name, words }) => {
        const send = () => commands[name]!(...words);
        const key = keyOf(name, words);
        const before = lastOfKey.get(key);
        const answer = (before === undefined ? send() : before.then(send)).then(
          (value): Answer => [null, value],
          (error: Error): Answer => [error, undefined],
        );
        lastOfKey.set(key, answer);
        return answer;
      }),
    );
  };
  const pipeline: object = new Proxy(
    { exec },
    {
      get(target, name: string) {
        if (name === 'exec') return target.exec;
        if (name === 'length') return given.length;
        return (...words: Word[]) => {
          given.push({ name, words });
          return pipeline;
        };
      },
    },
  );
  return pipeline;
}

/** The first, with which all others of the command share their slot. */
function keyOf(name: string, words: readonly Word[]): Word {
  return (name === 'eval' || name === 'evalsha' ? words[2] : words[0]) ?? '';
}
