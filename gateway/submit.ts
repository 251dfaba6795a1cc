/** Submit: one job's way from a parsed body to a broker's reply: what can be told without a broker is, and the rest is for it to say. */
import type { Context } from 'hono';
import { estimatePromptTokens } from '../shared/token-estimate.ts';
import type { AppEnv } from './app-env.ts';
import { type CacheTerms, callBroker, type RelayRequest } from './broker-call.ts';
import { CACHE_STATUS_HEADER } from './cached-reply.ts';
import { type Delivery, readDelivery } from './delivery.ts';
import type { JsonObject } from './json-body.ts';
import { giveBack, look, refusalOfTokens, takeStanding } from './metered.ts';
import { contentKey, isDeterministic } from './response-cache.ts';
import { readTerms, type Terms } from './terms.ts';
import { textDigest } from './text-digest.ts';

type Submission = Pick<RelayRequest, 'job' | 'reply' | 'promptTokensBound' | 'isPromptUncertain'> & { body: JsonObject };

export async function submit(c: Context<AppEnv>, request: Submission): Promise<Response> {
  const { body, ...call } = request;
  const { job } = request;
  const { tenant, shard } = job;
  const terms = readTerms(c.req.raw.headers);
  let delivery = await readDelivery(c.req.raw.headers, { tenant, path: c.req.path, body });
  const { idempotency } = delivery;
  const repeated = await attached(c, shard, delivery);
  if (repeated !== undefined) return repeated;
  const cache = await cacheTerms(terms, request);
  if (terms.isCoalesced && idempotency === undefined) delivery = await coalesced(delivery, request);
  const promptTokens = estimatePromptTokens(job);
  // What may have been kept costs no tokens.
  const refused = cache?.mayAnswer === true ? undefined : refusalOfTokens(c, job, promptTokens);
  if (refused !== undefined) return refused;
  const { keyId } = c.get('caller');
  try {
    const reply = await callBroker(c, shard, {
      path: '/relay',
      body: { ...call, keyId, isBackground: c.get('isBackground') === true, promptTokens, delivery, maxWaitMs: terms.maxWaitMs, cache },
    });
    takeStanding(c, reply);
    if (cache !== undefined && reply.ok && !reply.headers.has(CACHE_STATUS_HEADER)) reply.headers.set(CACHE_STATUS_HEADER, 'miss');
    return reply;
  } catch (error) {
    // What a broker refuses it gives back itself.
    await giveBack(c, job);
    throw error;
  }
}

/** The reply to an earlier request of this one's Idempotency-Key; undefined where there is none. */
export async function repetition(c: Context<AppEnv>, shard: string, body: JsonObject): Promise<Response | undefined> {
  const { tenant } = c.get('caller');
  return await attached(c, shard, await readDelivery(c.req.raw.headers, { tenant, path: c.req.path, body }));
}

async function attached(c: Context<AppEnv>, shard: string, { idempotency }: Delivery): Promise<Response | undefined> {
  if (idempotency === undefined) return undefined;
  // A repetition is no work, so it is not counted either.
  await look(c);
  const reply = await callBroker(c, shard, { path: '/attach', body: { tenant: c.get('caller').tenant, idempotency } });
  return reply.status === 204 ? undefined : reply;
}

async function cacheTerms({ cache }: Terms, { job, reply }: Submission): Promise<CacheTerms | undefined> {
  // A response can be asked for again by its id, which an answer that was kept would not have.
  if (cache === 'off' || reply.kind === 'response' || !isDeterministic(job)) return undefined;
  return { content: await contentKey(job), mayAnswer: cache === 'on' };
}

/** Of identical requests that want the same form of answer the first one's generation is everybody's. */
async function coalesced(delivery: Delivery, { job, reply }: Submission): Promise<Delivery> {
  const content = await contentKey(job);
  const digest = await textDigest(`${job.tenant}\n\n${content}\n${job.model}\n${JSON.stringify(reply)}`);
  return { ...delivery, idempotency: { digest, bodyDigest: content, isCoalesced: true } };
}
