/** Completions: POST /v1/completions, as a call that posts a job. */
import { parseCompletionRequest } from '../completion-request.ts';
import type { Settings } from '../env.ts';
import { postedJob } from './posted-job.ts';

export function completions(settings: Settings) {
  return postedJob(settings, {
    idPrefix: 'cmpl-',
    parse(body) {
      const { isStreamed, includeUsage, keptCount, wantsLogprobs, ...request } = parseCompletionRequest(body);
      return { ...request, reply: { kind: 'completion', isStreamed, includeUsage, keptCount, wantsLogprobs } };
    },
  });
}
