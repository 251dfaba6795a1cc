/** Embeddings: POST /v1/embeddings, as a call that posts a job. */
import { parseEmbeddingRequest } from '../embedding-request.ts';
import type { Settings } from '../env.ts';
import { postedJob } from './posted-job.ts';

export function embeddings(settings: Settings) {
  return postedJob(settings, {
    idPrefix: 'embd-',
    parse(body) {
      const { encodingFormat, ...request } = parseEmbeddingRequest(body);
      return { ...request, isPromptUncertain: true, reply: { kind: 'embeddings', isStreamed: false, encodingFormat } };
    },
  });
}
