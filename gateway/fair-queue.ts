/**
 * FairQueue: where among the waiting a job stands: start-time fair queueing over tokens, within each class of service, over all brokers and
 * all queues of a model. While two tenants wait, what is served of them goes as their weights; whoever has little to ask for is served
 * before those who flood, and nobody is held to what was done while he did not wait.
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
import { enteringKey, fairKey, queueKey, queuePrefix } from '../shared/keys.ts';
import { RedisScript, type ScriptClient } from './redis-script.ts';

/** BullMQ takes priorities from 1 to 2^21 - 1 and ranks a job without one above all of them. Each class has a third of the range. */
export const STEPS_PER_CLASS = 699_049;
/** Tokens of a tenant of weight 1 in one step; within one step the order is that of arrival. */
const TOKENS_PER_STEP = 4;
/** Of a model that nobody asks for. */
const LIFETIME_MS = 60 * 60_000;
/** Tenants this far behind the present are forgotten: longer than any answer is, whose true length is told at its end. */
const FORGET_TOKENS = 1_000_000;

/** A job that was given a place gets there before, or its broker has died. */
const ENTERING_S = 5;

/** What has ended is told with the next entrance, or by itself after this long. */
const SETTLE_AFTER_MS = 20;

/**
 * Tells what jobs took that are over: of each its name, its tenant, how much longer it was than expected, in virtual time; in ARGV from `first` on.
 */
const SETTLE_FROM = `
local function settle_from(first)
  for at = first, #ARGV, 3 do
    redis.call('HDEL', KEYS[2], ARGV[at])
    if redis.call('ZSCORE', KEYS[1], ARGV[at + 1]) then redis.call('ZINCRBY', KEYS[1], ARGV[at + 2], ARGV[at + 1]) end
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
  model: string;
  serviceClass: ServiceClass;
  tenant: string;
  weight: number;
  /** Expected; settle corrects it. */
  tokens: number;
  /** Which queue it goes to. */
  queueName: string;
  /** It is in no queue with those that need a row, and their order is none of its business. */
  isQuick?: boolean;
  /** It is refused when more than this many jobs would stand before it. */
  maxAheadCount: number;
}

export type Entry = { outcome: 'entered'; priority: number; aheadCount: number } | { outcome: 'refused'; aheadCount: number };

/**
 * KEYS[1]     sorted set of virtual times: of each tenant where its last job ends; of '' the present; of ' ' the latest start
 * KEYS[2]     hash of the jobs that may not be on their queue yet: '<start> <second in which they came>'
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
 * ARGV[10]    seconds after which a job that is not on its queue will not come
 * ARGV[11..]  prefixes of the names of jobs, in the order of the queues; then what SETTLE_FROM takes
 *
 * Output: { priority, or 0 when refused; how many stand before it }
 */
const ENTER = new RedisScript(`${SETTLE_FROM}
local UNIT = 4294967296
local tenant, length = ARGV[1], tonumber(ARGV[2])
local base, steps, step_time = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local function score(priority) return string.format('%.0f', priority * UNIT) end
local function time_of(member) return tonumber(redis.call('ZSCORE', KEYS[1], member) or '0') end

local queue_count = (#KEYS - 2) / 3
settle_from(11 + queue_count)
local second = tonumber(redis.call('TIME')[1])
local first
for index = 0, queue_count - 1 do
  local head = redis.call('ZRANGEBYSCORE', KEYS[3 + 3 * index], score(base), '(' .. score(base + steps), 'WITHSCORES', 'LIMIT', 0, 1)
  if #head > 0 then
    local step = math.floor(tonumber(head[2]) / UNIT) - base
    if first == nil or step < first then first = step end
  end
end
-- Also among those that were given a place a moment ago.
local entering = redis.call('HGETALL', KEYS[2])
local coming = {}
for at = 1, #entering, 2 do
  local begins, came = string.match(entering[at + 1], '(%S+) (%S+)')
  if redis.call('EXISTS', entering[at]) == 1 or second - tonumber(came) > tonumber(ARGV[10]) then
    redis.call('HDEL', KEYS[2], entering[at])
  else
    local step = math.floor(tonumber(begins) / step_time)
    coming[#coming + 1] = step
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
-- Those on their way count as those that are there: a burst asks for all its places before the first of it has arrived.
for _, its in ipairs(coming) do
  if its <= step + moved then ahead = ahead + 1 end
end
if ahead > tonumber(ARGV[6]) then return { 0, ahead } end

if moved > 0 then
  local back = moved * step_time
  present, start = present - back, start - back
  local times = redis.call('ZRANGE', KEYS[1], 0, -1)
  for _, member in ipairs(times) do redis.call('ZINCRBY', KEYS[1], -back, member) end
  for at, place in ipairs(entering) do
    local begins, came = string.match(place, '^(%S+) (%S+)$')
    if at % 2 == 0 and redis.call('HEXISTS', KEYS[2], entering[at - 1]) == 1 then
      redis.call('HSET', KEYS[2], entering[at - 1], (tonumber(begins) - back) .. ' ' .. came)
    end
  end
  for index = 0, queue_count - 1 do
    local jobs = redis.call('ZRANGEBYSCORE', KEYS[3 + 3 * index], score(base), '(' .. score(base + steps), 'WITHSCORES')
    for at = 1, #jobs, 2 do
      local old = math.floor(tonumber(jobs[at + 1]) / UNIT)
      local new = math.max(base, old - moved)
      redis.call('ZADD', KEYS[3 + 3 * index], string.format('%.0f', tonumber(jobs[at + 1]) - (old - new) * UNIT), jobs[at])
      redis.call('HSET', ARGV[11 + index] .. jobs[at], 'priority', new)
    end
    -- Jobs that a batcher has may come back.
    for _, id in ipairs(redis.call('LRANGE', KEYS[5 + 3 * index], 0, -1)) do
      local old = tonumber(redis.call('HGET', ARGV[11 + index] .. id, 'priority') or '0')
      if old >= base and old < base + steps then
        redis.call('HSET', ARGV[11 + index] .. id, 'priority', math.max(base, old - moved))
      end
    end
  end
end
redis.call('ZADD', KEYS[1], present, '')
redis.call('ZADD', KEYS[1], math.max(time_of(' '), start), ' ')
redis.call('ZADD', KEYS[1], start + length, tenant)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. (present - tonumber(ARGV[7])))
redis.call('PEXPIRE', KEYS[1], ARGV[8])
redis.call('HSET', KEYS[2], ARGV[11] .. ARGV[9], start .. ' ' .. second)
redis.call('PEXPIRE', KEYS[2], ARGV[8])
return { priority, ahead }
`);

/**
 * KEYS[1]  sorted set of virtual times
 * KEYS[2]  hash of the jobs that may not be on their queue yet
 *
 * ARGV     what SETTLE_FROM takes
 */
const SETTLE = new RedisScript(`${SETTLE_FROM}
settle_from(1)
return 0
`);

/** What of one model and class has ended, as SETTLE_FROM takes it. */
interface Settling {
  keys: readonly [fair: string, entering: string];
  args: (string | number)[];
}

export class FairQueue {
  readonly #link: Link;
  readonly #onTrouble: (message: string) => void;
  /** By their first key. */
  #settling = new Map<string, Settling>();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(link: Link, onTrouble: (message: string) => void) {
    this.#link = link;
    this.#onTrouble = onTrouble;
  }

  /**
   * The priority of a job, its tokens counted to its tenant; or, when more would stand before it than may, a refusal that counts nothing.
   * `queueNames` are all of the model that are served. Throws `dependency_unavailable`.
   */
  async enter(job: Entrant, queueNames: readonly string[]): Promise<Entry> {
    const { id, model, serviceClass, tenant, queueName } = job;
    const lane = laneOf(job);
    const names = [queueName, ...queueNames.filter(name => name !== queueName)];
    const keys = [
      fairKey(model, lane),
      enteringKey(model, lane),
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
      ENTERING_S,
      ...names.map(name => jobPrefix(model, name)),
      ...this.#takeSettling(keys[0]!),
    ];
    const [priority, aheadCount] = (await this.#link.run(client => ENTER.run(client, keys, args))) as [number, number];
    return priority === 0 ? { outcome: 'refused', aheadCount } : { outcome: 'entered', priority, aheadCount };
  }

  /** A job is over, or was never queued: what it took instead of what was expected. */
  settle(job: Omit<Entrant, 'maxAheadCount'>, usedTokens: number): void {
    const { id, model, tenant, queueName } = job;
    const lane = laneOf(job);
    const keys = [fairKey(model, lane), enteringKey(model, lane)] as const;
    let settling = this.#settling.get(keys[0]);
    if (settling === undefined) {
      settling = { keys, args: [] };
      this.#settling.set(keys[0], settling);
    }
    settling.args.push(jobPrefix(model, queueName) + id, tenant, (usedTokens - job.tokens) / job.weight);
    this.#timer ??= setTimeout(() => void this.flush(), SETTLE_AFTER_MS);
  }

  #takeSettling(key: string): (string | number)[] {
    const args = this.#settling.get(key)?.args ?? [];
    this.#settling.delete(key);
    return args;
  }

  /** Tells at once what no entrance has taken along. Never throws. */
  async flush(): Promise<void> {
    if (this.#timer !== undefined) clearTimeout(this.#timer);
    this.#timer = undefined;
    const all = [...this.#settling.values()];
    this.#settling = new Map();
    try {
      await Promise.all(all.map(({ keys, args }) => this.#link.run(client => SETTLE.run(client, keys, args))));
    } catch (error) {
      // What is not told is an unfairness of one answer.
      this.#onTrouble(String(error));
    }
  }
}

function laneOf({ serviceClass, isQuick }: Pick<Entrant, 'serviceClass' | 'isQuick'>): string {
  return isQuick === true ? `quick-${serviceClass}` : serviceClass;
}

/** BullMQ's, of the names of a queue's jobs. */
function jobPrefix(model: string, queueName: string): string {
  return `${queuePrefix(model)}:${queueName}:`;
}

export function firstPriority(serviceClass: ServiceClass): number {
  return 1 + SERVICE_CLASSES.indexOf(serviceClass) * STEPS_PER_CLASS;
}
