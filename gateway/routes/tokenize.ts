/** POST /tokenize and /detokenize: vLLM's calls; a batcher answers them from its vocabulary, ahead of all that needs a row. */
import type { Context } from 'hono';
import { JOB_VERSION, type Job } from '../../shared/job.ts';
import type { AppEnv } from '../app-env.ts';
import { shardOf } from '../broker-call.ts';
import type { Settings } from '../env.ts';
import { readJsonBody } from '../json-body.ts';
import { parseDetokenizeRequest, parseTokenizeRequest } from '../quick-request.ts';
import { tracing } from '../request-trace.ts';
import { submit } from '../submit.ts';

export function quick(settings: Settings, kind: 'tokenize' | 'detokenize') {
  return async function answerQuickly(c: Context<AppEnv>): Promise<Response> {
    const body = await readJsonBody(c.req.raw, settings);
    const request = kind === 'tokenize' ? parseTokenizeRequest(body, settings) : parseDetokenizeRequest(body);
    const id = `tok-${crypto.randomUUID().replaceAll('-', '')}`;
    const shard = shardOf(id, settings);
    const { tenant } = c.get('caller');
    const job: Job = { version: JOB_VERSION, id, tenant, shard, submittedAt: Date.now(), ...tracing(c.get('trace')), ...request };
    Object.assign(c.get('logged'), { jobId: id, model: job.model.slice(0, 128) });
    return await submit(c, { body, job, reply: { kind, isStreamed: false }, promptTokensBound: 0, isPromptUncertain: true });
  };
}
