/** Messages: Anthropic's POST /v1/messages and /v1/messages/count_tokens, as calls that post a job. */
import type { Settings } from '../env.ts';
import { parseMessageRequest, parseTokenCountRequest } from '../messages/message-request.ts';
import { postedJob } from './posted-job.ts';

export function messages(settings: Settings) {
  return postedJob(settings, { idPrefix: 'msg_', parse: body => parseMessageRequest(body, settings) });
}

export function countTokens(settings: Settings) {
  return postedJob(settings, { idPrefix: 'tok-', parse: body => parseTokenCountRequest(body, settings) });
}
