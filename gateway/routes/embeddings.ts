/** POST /v1/embeddings: the body becomes a job, and a broker's reply to it becomes ours. */
import type { Context } from 'hono';
import { JOB_VERSION, type Job } from '../../shared/job.ts';
import type { AppEnv } from '../app-env.ts';
import { shardOf } from '../broker-call.ts';
import { parseEmbeddingRequest } from '../embedding-request.ts';
import type { Settings } from '../env.ts';
import { readJsonBody } from '../json-body.ts';
import { tracing } from '../request-trace.ts';
import { submit } from '../submit.ts';

export function embeddings(settings: Settings) {
  return async function embed(c: Context<AppEnv>): Promise<Response> {
    const body = await readJsonBody(c.req.raw, settings);
    const { job: asked, encodingFormat, promptTokensBound } = parseEmbeddingRequest(body);
    const id = `embd-${crypto.randomUUID().replaceAll('-', '')}`;
    const shard = shardOf(id, settings);
    const { tenant } = c.get('caller');
    const job: Job = { version: JOB_VERSION, id, tenant, shard, submittedAt: Date.now(), ...tracing(c.get('trace')), ...asked };
    Object.assign(c.get('logged'), { jobId: id, model: job.model.slice(0, 128) });
    const reply = { kind: 'embeddings' as const, isStreamed: false as const, encodingFormat };
    return await submit(c, { body, job, reply, promptTokensBound, isPromptUncertain: true });
  };
}
