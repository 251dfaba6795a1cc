/** POST /v1/chat/completions: the body becomes a job, and a broker's reply to it becomes ours. */
import type { Context } from 'hono';
import { JOB_VERSION, type Job } from '../../shared/job.ts';
import type { AppEnv } from '../app-env.ts';
import { shardOf } from '../broker-call.ts';
import { parseChatRequest } from '../chat-request.ts';
import type { Settings } from '../env.ts';
import { readJsonBody } from '../json-body.ts';
import { tracing } from '../request-trace.ts';
import { submit } from '../submit.ts';

export function chatCompletions(settings: Settings) {
  return async function completeChat(c: Context<AppEnv>): Promise<Response> {
    const body = await readJsonBody(c.req.raw, settings);
    const request = parseChatRequest(body, settings);
    const { isStreamed, includeUsage, hasRunningUsage } = request;
    const id = `chatcmpl-${crypto.randomUUID().replaceAll('-', '')}`;
    const shard = shardOf(id, settings);
    const job: Job = {
      version: JOB_VERSION,
      id,
      tenant: c.get('caller').tenant,
      shard,
      submittedAt: Date.now(),
      ...tracing(c.get('trace')),
      ...request.job,
    };
    Object.assign(c.get('logged'), { jobId: id, model: job.model.slice(0, 128), isStreamed });
    return await submit(c, {
      body,
      job,
      reply: { kind: 'chat', isStreamed, includeUsage, ...(hasRunningUsage && { hasRunningUsage }) },
      promptTokensBound: request.promptTokensBound,
      isPromptUncertain: request.isPromptUncertain,
    });
  };
}
