/**
 * QueueEntry: how a job comes onto its queue, as a function for scripts of ours: BullMQ's own script, unchanged. So who gives a job its place there
 * puts it there in the same breath; nobody sees a job that has a place and is not there, and it takes one way to Redis and back.
 */
import { addPrioritizedJob } from './redis-driver.js';

/** A batcher decides itself when a job has been tried too often; BullMQ must not decide before it. */
const ATTEMPTS = 100;
/** Nobody reads BullMQ's own events. */
export const QUEUE_EVENT_COUNT = 100;

/**
 * put_job(prefix, job, priority): `prefix` begins the names of the queue's structures and of its jobs; `job` is { id =, shard =, data = the job in
 * JSON }. By the name of the shard its next broker finds the job, should this one not live to list it. A job that is there already stays as it is.
 */
export const PUT_JOB = `
local function bullmq_put(KEYS, ARGV)
${addPrioritizedJob.content}
end
local function put_job(prefix, job, priority)
  redis.call('HSET', prefix .. 'meta', 'opts.maxLenEvents', ${QUEUE_EVENT_COUNT})
  local keys = {}
  for at, structure in ipairs({ 'marker', 'meta', 'id', 'prioritized', 'delayed', 'completed', 'active', 'events', 'pc' }) do
    keys[at] = prefix .. structure
  end
  local time = redis.call('TIME')
  local options = { jobId = job.id, priority = priority, attempts = ${ATTEMPTS}, removeOnComplete = true, removeOnFail = true }
  local head = { prefix, job.id, job.shard, time[1] * 1000 + math.floor(time[2] / 1000) }
  return bullmq_put(keys, { cmsgpack.pack(head), job.data, cmsgpack.pack(options) })
end
`;
