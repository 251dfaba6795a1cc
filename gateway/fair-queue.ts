/**
 * FairQueue: puts jobs on their queues, each where its turn is: start-time fair queueing over tokens, within each class of service, over all
 * brokers and all queues of a model. While two tenants wait, what is served of them goes as their weights; whoever has little to ask for is
 * served before those who flood, and nobody is held to what was done while he did not wait.
 *
 * Time is virtual: it goes on with the work that is begun. A job starts at the present or where the tenant's last one ends, whichever is
 * later, and ends its tokens / the tenant's weight later. BullMQ's priority is the start, in steps:
 *
 *     priority   1 ················· 699,050 ················· 1,398,099 ················· 2,097,148
 *                │ priority │ V ─── starts ──▶ │ default              │ flex
 *
 * When starts come to the end of their class's range everything is moved back to its beginning by what has passed (re-based).
 */
import { SERVICE_CLASSES, type ServiceClass } from '../shared/job.ts';
import { fairKey, ownQueuesKey, queueBeginning, queueKey, queueNameOf } from '../shared/keys.ts';
import { PUT_JOB } from './queue-entry.ts';
import { RedisScript, type ScriptClient } from './redis-script.ts';

/** BullMQ takes priorities from 1 to 2^21 - 1 and ranks a job without one above all of them. Each class has a third of the range. */
export const STEPS_PER_CLASS = 699_049;
/** Tokens of a tenant of weight 1 in one step; within one step the order is that of arrival. */
const TOKENS_PER_STEP = 4;
/** Of a model that nobody asks for. */
const LIFETIME_MS = 60 * 60_000;
/** Tenants this far behind the present are forgotten: longer than any answer is, whose true length is told at its end. */
const FORGET_TOKENS = 1_000_000;

/** What has ended is told with the next entrance, or by itself after this long. */
const SETTLE_AFTER_MS = 20;

/** Tells what jobs took that are over: of each its tenant and how much longer it was than expected, in virtual time; in ARGV from `first` on. */
const SETTLE_FROM = `
local function settle_from(first)
  for at = first, #ARGV, 2 do
    if redis.call('ZSCORE', KEYS[1], ARGV[at]) then redis.call('ZINCRBY', KEYS[1], ARGV[at + 1], ARGV[at]) end
  end
end
`;

/** Of RedisLink what is used here. */
export interface Link {
  run<T>(command: (client: ScriptClient) => Promise<T>): Promise<T>;
}

/** A job that wants to be queued. */
export interface Entrant {
  id: string;
  /** Whose broker looks after it. */
  shard: string;
  model: string;
  serviceClass: ServiceClass;
  tenant: string;
  weight: number;
  /** Expected; settle corrects it. */
  tokens: number;
  /** To whose own queue it goes; undefined for the shared one. */
  batcherId?: string | undefined;
  /** It is in no queue with those that need a row, and their order is none of its business. */
  isQuick?: boolean;
  /** It is refused when more than this many jobs would stand before it. */
  maxAheadCount: number;
}

export type Entry = { outcome: 'entered'; priority: number; aheadCount: number } | { outcome: 'refused'; aheadCount: number };

/**
 * KEYS[1]     sorted set of virtual times: of each tenant where its last job ends; of '' the present; of ' ' the latest start
 * KEYS[2]     set of the batchers that have a queue of their own
 * KEYS[3..]   of each queue of the model, that of the job first: sorted set of the waiting, list of those that came back, list of those
 *             that are worked on
 *
 * ARGV[1]     tenant
 * ARGV[2]     how long the job is, in virtual time
 * ARGV[3]     first priority of the class
 * ARGV[4]     steps of the class
 * ARGV[5]     virtual time of a step
 * ARGV[6]     most jobs that may stand before it
 * ARGV[7]     how far behind a tenant is forgotten
 * ARGV[8]     lifetime of the times in ms
 * ARGV[9]     id of the job
 * ARGV[10]    name of its shard
 * ARGV[11]    the job, in JSON
 * ARGV[12]    to whose own queue it goes; '' for another queue
 * ARGV[13..]  prefixes of the names of jobs, in the order of the queues; then what SETTLE_FROM takes
 *
 * Output: { priority, or 0 when refused; how many stand before it }
 */
const ENTER = new RedisScript(`${PUT_JOB}${SETTLE_FROM}
local UNIT = 4294967296
local tenant, length = ARGV[1], tonumber(ARGV[2])
local base, steps, step_time = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local function score(priority) return string.format('%.0f', priority * UNIT) end
local function time_of(member) return tonumber(redis.call('ZSCORE', KEYS[1], member) or '0') end

local queue_count = (#KEYS - 2) / 3
settle_from(13 + queue_count)
local first
for index = 0, queue_count - 1 do
  local head = redis.call('ZRANGEBYSCORE', KEYS[3 + 3 * index], score(base), '(' .. score(base + steps), 'WITHSCORES', 'LIMIT', 0, 1)
  if #head > 0 then
    local step = math.floor(tonumber(head[2]) / UNIT) - base
    if first == nil or step < first then first = step end
  end
end
-- The present is a step before what is begun next, so that who comes new goes before it; where nothing waits it is what was begun last.
local present = math.max(time_of(''), first and (first - 1) * step_time or time_of(' '))
local start = math.max(first and present or present + step_time, time_of(tenant))
local step = math.floor(start / step_time)

local moved = 0
if step >= steps then
  moved = math.floor(present / step_time)
  if moved < steps / 4 then moved = 0 end
  step = math.min(step - moved, steps - 1)
end
local priority = base + step
-- Priorities of the waiting are still where they were before a move.
local ahead = redis.call('LLEN', KEYS[4]) + redis.call('ZCOUNT', KEYS[3], '-inf', '(' .. score(math.min(priority + moved, base + steps - 1) + 1))
if ahead > tonumber(ARGV[6]) then return { 0, ahead } end

if moved > 0 then
  local back = moved * step_time
  present, start = present - back, start - back
  local times = redis.call('ZRANGE', KEYS[1], 0, -1)
  for _, member in ipairs(times) do redis.call('ZINCRBY', KEYS[1], -back, member) end
  for index = 0, queue_count - 1 do
    local jobs = redis.call('ZRANGEBYSCORE', KEYS[3 + 3 * index], score(base), '(' .. score(base + steps), 'WITHSCORES')
    for at = 1, #jobs, 2 do
      local old = math.floor(tonumber(jobs[at + 1]) / UNIT)
      local new = math.max(base, old - moved)
      redis.call('ZADD', KEYS[3 + 3 * index], string.format('%.0f', tonumber(jobs[at + 1]) - (old - new) * UNIT), jobs[at])
      redis.call('HSET', ARGV[13 + index] .. jobs[at], 'priority', new)
    end
    -- Jobs that a batcher has may come back.
    for _, id in ipairs(redis.call('LRANGE', KEYS[5 + 3 * index], 0, -1)) do
      local old = tonumber(redis.call('HGET', ARGV[13 + index] .. id, 'priority') or '0')
      if old >= base and old < base + steps then
        redis.call('HSET', ARGV[13 + index] .. id, 'priority', math.max(base, old - moved))
      end
    end
  end
end
redis.call('ZADD', KEYS[1], present, '')
redis.call('ZADD', KEYS[1], math.max(time_of(' '), start), ' ')
redis.call('ZADD', KEYS[1], start + length, tenant)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. (present - tonumber(ARGV[7])))
redis.call('PEXPIRE', KEYS[1], ARGV[8])
put_job(ARGV[13], { id = ARGV[9], shard = ARGV[10], data = ARGV[11] }, priority)
-- Who looks whether the queue is empty before it takes it off the list finds the job, or comes before it.
if ARGV[12] ~= '' then redis.call('SADD', KEYS[2], ARGV[12]) end
return { priority, ahead }
`);

/**
 * KEYS[1]  sorted set of virtual times
 *
 * ARGV     what SETTLE_FROM takes
 */
const SETTLE = new RedisScript(`${SETTLE_FROM}
settle_from(1)
return 0
`);

export class FairQueue {
  readonly #link: Link;
  readonly #onTrouble: (message: string) => void;
  /** What of each model and class has ended, as SETTLE_FROM takes it; by the key of its times. */
  #settling = new Map<string, (string | number)[]>();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(link: Link, onTrouble: (message: string) => void) {
    this.#link = link;
    this.#onTrouble = onTrouble;
  }

  /**
   * Puts a job on its queue, its tokens counted to its tenant; or, when more would stand before it than may, a refusal that counts nothing.
   * `data` is the job in JSON; `queueNames` are all of the model that are served. Throws `dependency_unavailable`; the job may then be there.
   */
  async enter(job: Entrant, data: string, queueNames: readonly string[]): Promise<Entry> {
    const { id, model, serviceClass, tenant, batcherId } = job;
    const fair = fairKey(model, laneOf(job));
    const queueName = queueNameOf(job);
    const names = [queueName, ...queueNames.filter(name => name !== queueName)];
    const keys = [
      fair,
      ownQueuesKey(model),
      ...names.flatMap(name => (['prioritized', 'wait', 'active'] as const).map(structure => queueKey(model, name, structure))),
    ];
    const args = [
      tenant,
      job.tokens / job.weight,
      firstPriority(serviceClass),
      STEPS_PER_CLASS,
      TOKENS_PER_STEP,
      Math.min(job.maxAheadCount, Number.MAX_SAFE_INTEGER),
      FORGET_TOKENS,
      LIFETIME_MS,
      id,
      job.shard,
      data,
      batcherId ?? '',
      ...names.map(name => queueBeginning(model, name)),
      ...this.#takeSettling(fair),
    ];
    const [priority, aheadCount] = (await this.#link.run(client => ENTER.run(client, keys, args))) as [number, number];
    return priority === 0 ? { outcome: 'refused', aheadCount } : { outcome: 'entered', priority, aheadCount };
  }

  /** A job is over, or was never queued: what it took instead of what was expected. */
  settle(job: Omit<Entrant, 'id' | 'shard' | 'batcherId' | 'maxAheadCount'>, usedTokens: number): void {
    const key = fairKey(job.model, laneOf(job));
    const settling = this.#settling.get(key) ?? [];
    this.#settling.set(key, settling);
    settling.push(job.tenant, (usedTokens - job.tokens) / job.weight);
    this.#timer ??= setTimeout(() => void this.flush(), SETTLE_AFTER_MS);
  }

  #takeSettling(key: string): (string | number)[] {
    const args = this.#settling.get(key) ?? [];
    this.#settling.delete(key);
    return args;
  }

  /** Tells at once what no entrance has taken along. Never throws. */
  async flush(): Promise<void> {
    if (this.#timer !== undefined) clearTimeout(this.#timer);
    this.#timer = undefined;
    const all = [...this.#settling];
    this.#settling = new Map();
    try {
      await Promise.all(all.map(([key, args]) => this.#link.run(client => SETTLE.run(client, [key], args))));
    } catch (error) {
      // What is not told is an unfairness of one answer.
      this.#onTrouble(String(error));
    }
  }
}

function laneOf({ serviceClass, isQuick }: Pick<Entrant, 'serviceClass' | 'isQuick'>): string {
  return isQuick === true ? `quick-${serviceClass}` : serviceClass;
}

export function firstPriority(serviceClass: ServiceClass): number {
  return 1 + SERVICE_CLASSES.indexOf(serviceClass) * STEPS_PER_CLASS;
}
