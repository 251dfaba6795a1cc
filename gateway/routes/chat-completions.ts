/** ChatCompletions: POST /v1/chat/completions, as a call that posts a job. */
import { parseChatRequest } from '../chat-request.ts';
import type { Settings } from '../env.ts';
import { postedJob } from './posted-job.ts';

export function chatCompletions(settings: Settings) {
  return postedJob(settings, {
    idPrefix: 'chatcmpl-',
    parse(body) {
      const { isStreamed, includeUsage, hasRunningUsage, hasNamedCall, ...request } = parseChatRequest(body, settings);
      const more = { ...(hasRunningUsage && { hasRunningUsage }), ...(hasNamedCall && { hasNamedCall }) };
      return { ...request, reply: { kind: 'chat', isStreamed, includeUsage, ...more } };
    },
  });
}
