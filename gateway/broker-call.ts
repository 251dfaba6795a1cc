/** BrokerCall: how the Worker reaches the brokers, and which one holds a job. */
import type { Context } from 'hono';
import { ApiError } from '../shared/errors.ts';
import type { Job } from '../shared/job.ts';
import type { AppEnv } from './app-env.ts';
import type { Delivery, Idempotency } from './delivery.ts';
import type { EncodingFormat } from './embedding-request.ts';
import type { Settings } from './env.ts';
import { type HeldCounts, summed } from './held-requests.ts';
import type { SeriesEntry } from './metrics/series.ts';
import type { ResponseEcho } from './responses/response-object.ts';

/** Body of a call to /relay. */
export interface RelayRequest {
  /** Its model as the client said it; the broker knows the models. */
  job: Job;
  reply: ReplyShape;
  /** No batcher makes more prompt tokens of it. */
  promptTokensBound: number;
  /** A batcher may refuse the prompt for more than its length: until one has accepted it, no reply says 200. */
  isPromptUncertain?: boolean;
  /** With which of its tenant's keys it came. */
  keyId: string;
  /** Nobody waits for it: it leaves room in the limits for what somebody waits for. */
  isBackground: boolean;
  /** Of the prompt, estimated: what is reserved for it. */
  promptTokens: number;
  /** Longest wait with which it goes into the queue; undefined for the setting. */
  maxWaitMs?: number | undefined;
  /** Absent where the answer is not kept. */
  cache?: CacheTerms | undefined;
  delivery: Delivery;
}

/** How a request uses the answers that are kept for its tenant. */
export interface CacheTerms {
  /** Digest of what is asked, but for the model. */
  content: string;
  /** One that is kept will do. */
  mayAnswer: boolean;
}

/** Body of a call to /attach: whose idempotency key was given once more. */
export interface AttachRequest {
  tenant: string;
  idempotency: Idempotency;
}

/** Body of a call to /resume: by the owner of a key, or with a stream's token. */
export interface ResumeRequest {
  id: string;
  tenant?: string;
  token?: string;
  /** Sequence number of the last event that the client has seen; -1 for none. */
  seenSeq: number;
}

/** Body of a call to /response. */
export interface ResponseRequest {
  id: string;
  tenant: string;
  want: ResponseWant;
}

/** A response as it stands, its events from one on, the same after it was stopped, its end, what it was asked, or that and its answer. */
export type ResponseWant =
  | { kind: 'whole' | 'cancelled' | 'deleted' | 'input' | 'conversation' }
  | { kind: 'stream'; startingAfter: number };

/** Body of a call to /cancel. */
export interface CancelRequest {
  id: string;
  tenant: string;
}

/** Body of a call to /drain. */
export interface DrainRequest {
  batcherId: string;
}

/** Body of a call to /counts: what an isolate of the Worker has counted, and counts no more. */
export interface CountsRequest {
  entries: SeriesEntry[];
}

/** Body of a call to /metrics. */
export interface MetricsRequest {
  /** Of all brokers. Present where what is the same for all of them is to be told too. */
  held?: HeldCounts;
}

/** Body of a call to /scale. */
export interface ScaleRequest {
  model: string;
  /** Of all brokers. */
  held: HeldCounts;
}

export type ReplyShape = ChatShape | CompletionShape | ResponseShape | MessageShape | EmbeddingsShape | QuickShape;

interface ChatShape {
  kind: 'chat';
  isStreamed: boolean;
  includeUsage: boolean;
  /** Absent for false, as in records of before it was there. */
  hasRunningUsage?: boolean;
  /** It has to call one function by its name; absent for false. */
  hasNamedCall?: boolean;
}

interface CompletionShape {
  kind: 'completion';
  isStreamed: boolean;
  includeUsage: boolean;
  /** Of each prompt's choices the best so many are returned; all of them in a stream. */
  keptCount: number;
  wantsLogprobs: boolean;
}

export interface ResponseShape {
  kind: 'response';
  isStreamed: boolean;
  /** It is answered without its client. */
  isBackground: boolean;
  /** It can be asked for again. */
  isStored: boolean;
  echo: ResponseEcho;
  /** Number of the last event of the stream that its client has seen. */
  startingAfter?: number;
}

interface MessageShape {
  kind: 'message';
  isStreamed: boolean;
}

interface EmbeddingsShape {
  kind: 'embeddings';
  isStreamed: false;
  encodingFormat: EncodingFormat;
}

interface QuickShape {
  kind: 'tokenize' | 'detokenize' | 'count_tokens';
  isStreamed: false;
}

export const REQUEST_ID_HEADER = 'x-request-id';

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

/** All of this gateway's. */
export function shards(settings: Pick<Settings, 'brokerShardCount' | 'instance'>): string[] {
  return Array.from({ length: settings.brokerShardCount }, (_, index) => `${settings.instance}-${index}`);
}

export type BrokerCall =
  | { path: '/relay'; body: RelayRequest }
  | { path: '/attach'; body: AttachRequest }
  | { path: '/resume'; body: ResumeRequest }
  | { path: '/cancel'; body: CancelRequest }
  | { path: '/response'; body: ResponseRequest }
  | { path: '/drain'; body: DrainRequest }
  | { path: '/counts'; body: CountsRequest }
  | { path: '/metrics'; body: MetricsRequest }
  | { path: '/scale'; body: ScaleRequest }
  | { path: '/models' | '/ready' | '/batchers' | '/queues' | '/held'; body?: undefined };

/** Of a call, as the broker gets it. */
export function pathOf(request: Request): string {
  return request.url.slice(ORIGIN.length);
}

/** The broker's own reply, errors included; a broker that cannot be reached is `dependency_unavailable`. */
export async function callBroker(c: Context<AppEnv>, shard: string, call: BrokerCall): Promise<Response> {
  try {
    const stub = c.env.BROKER.get(c.env.BROKER.idFromName(shard));
    const url = ORIGIN + call.path;
    // By which its lines in the log are found together with ours.
    const headers = { [REQUEST_ID_HEADER]: c.get('requestId'), traceparent: c.get('trace').traceparent };
    const reply = await stub.fetch(
      url,
      call.body === undefined ? { headers } : { method: 'POST', headers, body: JSON.stringify(call.body) },
    );
    // The same body under headers that middleware may add to.
    return new Response(reply.body, reply);
  } catch (cause) {
    throw new ApiError('dependency_unavailable', 'The gateway is restarting. Try again shortly.', {
      retryAfterSeconds: RETRY_AFTER_SECONDS,
      cause,
    });
  }
}

/** Requests that wait for a batcher to come, in all brokers; one that does not answer has none to tell. */
export async function heldRequests(c: Context<AppEnv>, settings: Pick<Settings, 'brokerShardCount' | 'instance'>): Promise<HeldCounts> {
  const replies = await Promise.allSettled(
    shards(settings).map(async (shard): Promise<HeldCounts> => {
      const reply = await callBroker(c, shard, { path: '/held' });
      return reply.ok ? await reply.json() : {};
    }),
  );
  return summed(replies.map(reply => (reply.status === 'fulfilled' ? reply.value : {})));
}
