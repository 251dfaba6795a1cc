/** BrokerCall: how the Worker reaches the brokers, and which one holds a job. */
import { ApiError } from '../shared/errors.ts';
import type { Job } from '../shared/job.ts';
import type { Env, Settings } from './env.ts';

/** Body of a call to /relay. */
export interface RelayRequest {
  /** Its model as the client said it; the broker knows the models. */
  job: Job;
  reply: ReplyShape;
  /** No batcher makes more prompt tokens of it. */
  promptTokensBound: number;
}

export interface ReplyShape {
  kind: 'chat';
  isStreamed: boolean;
  includeUsage: boolean;
}

const RETRY_AFTER_SECONDS = 1;
/** The host is of no account; an object has no address. */
const ORIGIN = 'http://broker';

/** The broker that a job's id leads to, on any gateway. Its name is the job's shard. */
export function shardOf(jobId: string, settings: Pick<Settings, 'brokerShardCount' | 'instance'>): string {
  let hash = 0x811c9dc5;
  for (let i = 0; i < jobId.length; i++) hash = Math.imul(hash ^ jobId.charCodeAt(i), 0x01000193);
  return `${settings.instance}-${(hash >>> 0) % settings.brokerShardCount}`;
}

/** Any broker: all know the same of Redis and the batchers. */
export function anyShard(settings: Pick<Settings, 'instance'>): string {
  return `${settings.instance}-0`;
}

/** The broker's own reply, errors included; a broker that cannot be reached is `dependency_unavailable`. */
export async function callBroker(
  env: Env,
  shard: string,
  call: { path: '/relay' | '/models' | '/ready'; body?: RelayRequest },
): Promise<Response> {
  try {
    const stub = env.BROKER.get(env.BROKER.idFromName(shard));
    const reply = await stub.fetch(ORIGIN + call.path, call.body === undefined ? {} : { method: 'POST', body: JSON.stringify(call.body) });
    // The same body under headers that middleware may add to.
    return new Response(reply.body, reply);
  } catch (cause) {
    throw new ApiError('dependency_unavailable', 'The gateway is restarting. Try again shortly.', {
      retryAfterSeconds: RETRY_AFTER_SECONDS,
      cause,
    });
  }
}
