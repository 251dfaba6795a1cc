/**
 * Submit: one job's way from a parsed body to a broker's reply: let in by its tenant's object, or answered with what that has kept, and
 * given back when no broker took it.
 */
import type { Context } from 'hono';
import type { AppEnv } from './app-env.ts';
import { callBroker, type RelayRequest } from './broker-call.ts';
import { CACHE_STATUS_HEADER, cachedReply } from './cached-reply.ts';
import { type Delivery, readDelivery } from './delivery.ts';
import type { JsonObject } from './json-body.ts';
import { admit, giveBack, look } from './metered.ts';
import { contentKey, isDeterministic } from './response-cache.ts';
import { readTerms } from './terms.ts';
import { textDigest } from './text-digest.ts';

type Submission = Pick<RelayRequest, 'job' | 'reply' | 'promptTokensBound' | 'isPromptUncertain'> & { body: JsonObject };

export async function submit(c: Context<AppEnv>, request: Submission): Promise<Response> {
  const { body, ...call } = request;
  const { tenant } = request.job;
  const terms = readTerms(c.req.raw.headers);
  let delivery = await readDelivery(c.req.raw.headers, { tenant, path: c.req.path, body });
  const { idempotency } = delivery;
  if (idempotency !== undefined) {
    // A repetition is no work, so it is not counted either.
    await look(c);
    const reply = await callBroker(c, request.job.shard, { path: '/attach', body: { tenant, idempotency } });
    if (reply.status !== 204) return reply;
  }
  // A response can be asked for again by its id, which an answer that was kept would not have.
  const isCacheable = terms.cache !== 'off' && request.reply.kind !== 'response' && isDeterministic(request.job);
  const content = isCacheable || terms.isCoalesced ? await contentKey(request.job) : '';
  if (terms.isCoalesced && idempotency === undefined) delivery = await coalesced(delivery, { ...request, content });
  const admitted = await admit(c, request.job, isCacheable && terms.cache === 'on' ? content : undefined);
  if (admitted.outcome === 'answered') return await cachedReply(admitted.reply, request);
  const { job, promptTokens, weight, isBounded } = admitted;
  // What the limits have cut short is nobody else's answer.
  const cacheKey = isCacheable && !isBounded ? content : undefined;
  try {
    const reply = await callBroker(c, job.shard, {
      path: '/relay',
      body: { ...call, job, promptTokens, delivery, weight, maxWaitMs: terms.maxWaitMs, cacheKey },
    });
    if (isCacheable && reply.ok) reply.headers.set(CACHE_STATUS_HEADER, 'miss');
    return reply;
  } catch (error) {
    // What a broker refuses it gives back itself; this one was never reached.
    await giveBack(c, job);
    throw error;
  }
}

/** Of identical requests that want the same form of answer the first one's generation is everybody's. */
async function coalesced(delivery: Delivery, { job, reply, content }: Submission & { content: string }): Promise<Delivery> {
  const digest = await textDigest(`${job.tenant}\n\n${content}\n${JSON.stringify(reply)}`);
  return { ...delivery, idempotency: { digest, bodyDigest: content, isCoalesced: true } };
}
