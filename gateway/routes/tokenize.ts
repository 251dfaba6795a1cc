/** Tokenize: POST /tokenize and /detokenize, vLLM's calls; a batcher answers them from its vocabulary, ahead of all that needs a row. */
import type { Settings } from '../env.ts';
import { parseDetokenizeRequest, parseTokenizeRequest } from '../quick-request.ts';
import { postedJob } from './posted-job.ts';

export function quick(settings: Settings, kind: 'tokenize' | 'detokenize') {
  return postedJob(settings, {
    idPrefix: 'tok-',
    parse(body) {
      const job = kind === 'tokenize' ? parseTokenizeRequest(body, settings) : parseDetokenizeRequest(body);
      return { job, promptTokensBound: 0, isPromptUncertain: true, reply: { kind, isStreamed: false } };
    },
  });
}
