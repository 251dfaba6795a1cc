/**
 * OrphanJobs: jobs that a broker put on a queue and did not live to list as open. Each bears the name of its broker's shard there, so that the next
 * broker of the shard finds them where they wait or run, and looks after them like those of the list.
 */
import { ownQueue, ownQueuesKey, QUICK_QUEUE, queuedJobKey, queueKey, SHARED_QUEUE } from '../shared/keys.ts';
import type { RecordKeeper } from './record-keeper.ts';
import type { RedisLink } from './redis.ts';
import type { ReplyRecord } from './reply-record.ts';

export interface OrphanSearch {
  link: RedisLink;
  keeper: RecordKeeper;
  shard: string;
  /** Those of the list. */
  isKnown(id: string): boolean;
}

/** Of each queue: a flood is not gone through to its end. */
const MAX_LOOKED_AT = 10_000;

/** Of these models. Throws `dependency_unavailable`. */
export async function orphanRecords(models: Iterable<string>, search: OrphanSearch): Promise<ReplyRecord[]> {
  const records: ReplyRecord[] = [];
  for (const model of models) {
    const owners = await search.link.run(client => client.smembers(ownQueuesKey(model)));
    for (const queueName of [SHARED_QUEUE, QUICK_QUEUE, ...owners.map(ownQueue)]) {
      records.push(...(await orphansIn(model, queueName, search)));
    }
  }
  return records;
}

async function orphansIn(model: string, queueName: string, { link, keeper, shard, isKnown }: OrphanSearch): Promise<ReplyRecord[]> {
  const jobKey = (id: string) => queuedJobKey(model, queueName, id);
  const last = MAX_LOOKED_AT - 1;
  const lists = await link.run(client =>
    Promise.all([
      client.zrange(queueKey(model, queueName, 'prioritized'), 0, last),
      client.lrange(queueKey(model, queueName, 'wait'), 0, last),
      client.lrange(queueKey(model, queueName, 'active'), 0, last),
    ]),
  );
  const ids = lists.flat().filter(id => !isKnown(id));
  const shards = await link.run(client => Promise.all(ids.map(id => client.hget(jobKey(id), 'name'))));
  const own = ids.filter((_, index) => shards[index] === shard);
  const records = await Promise.all(
    own.map(async id => {
      const tenant = tenantOf(await link.run(client => client.hget(jobKey(id), 'data')));
      return tenant === undefined ? undefined : await keeper.find(id, tenant);
    }),
  );
  return records.filter(record => record !== undefined);
}

function tenantOf(data: string | null): string | undefined {
  try {
    const job = JSON.parse(data ?? '{}') as { tenant?: unknown } | null;
    return typeof job?.tenant === 'string' ? job.tenant : undefined;
  } catch {
    return undefined;
  }
}
