/** PostedJob: what every call that asks a batcher has in common: its body becomes a job, and a broker's reply to it becomes ours. */
import type { Context } from 'hono';
import { JOB_VERSION, type Job } from '../../shared/job.ts';
import type { AppEnv } from '../app-env.ts';
import { type RelayRequest, shardOf } from '../broker-call.ts';
import type { Settings } from '../env.ts';
import { type JsonObject, readJsonBody } from '../json-body.ts';
import { tracing } from '../request-trace.ts';
import { submit } from '../submit.ts';

/** What a body says, and the form of its reply. */
export interface Posted extends Pick<RelayRequest, 'reply' | 'promptTokensBound' | 'isPromptUncertain'> {
  job: Pick<
    Job,
    | 'model'
    | 'task'
    | 'prompt'
    | 'morePrompts'
    | 'sampling'
    | 'stopping'
    | 'structure'
    | 'toolUse'
    | 'choiceCount'
    | 'serviceClass'
    | 'echo'
  >;
}

export interface JobCall {
  /** Of the ids of its answers, with the sign behind it. */
  idPrefix: string;
  /** Throws the ApiError of the first fault. */
  parse(body: JsonObject): Posted;
}

export function postedJob(settings: Settings, { idPrefix, parse }: JobCall) {
  return async function postJob(c: Context<AppEnv>): Promise<Response> {
    const body = await readJsonBody(c.req.raw, settings);
    const request = parse(body);
    const id = `${idPrefix}${crypto.randomUUID().replaceAll('-', '')}`;
    const job: Job = {
      version: JOB_VERSION,
      id,
      tenant: c.get('caller').tenant,
      shard: shardOf(id, settings),
      submittedAt: Date.now(),
      ...tracing(c.get('trace')),
      ...request.job,
    };
    Object.assign(c.get('logged'), { jobId: id, model: job.model.slice(0, 128), isStreamed: request.reply.isStreamed });
    return await submit(c, { ...request, body, job });
  };
}
