/** Submit: one job's way from a parsed body to a broker's reply: let in by its tenant's object, and given back when no broker took it. */
import type { Context } from 'hono';
import type { AppEnv } from './app-env.ts';
import { callBroker, type RelayRequest } from './broker-call.ts';
import { readDelivery } from './delivery.ts';
import type { JsonObject } from './json-body.ts';
import { admit, giveBack, look } from './metered.ts';

export async function submit(
  c: Context<AppEnv>,
  request: Omit<RelayRequest, 'promptTokens' | 'delivery'> & { body: JsonObject },
): Promise<Response> {
  const { body, ...call } = request;
  const { tenant } = request.job;
  const delivery = await readDelivery(c.req.raw.headers, { tenant, path: c.req.path, body });
  const { idempotency } = delivery;
  if (idempotency !== undefined) {
    // A repetition is no work, so it is not counted either.
    await look(c);
    const reply = await callBroker(c.env, request.job.shard, { path: '/attach', body: { tenant, idempotency } });
    if (reply.status !== 204) return reply;
  }
  const { job, promptTokens } = await admit(c, request.job);
  try {
    return await callBroker(c.env, job.shard, { path: '/relay', body: { ...call, job, promptTokens, delivery } });
  } catch (error) {
    // What a broker refuses it gives back itself; this one was never reached.
    await giveBack(c, job);
    throw error;
  }
}
