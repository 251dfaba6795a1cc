/** CachedReply: an answer that was kept, told as the reply to a new request: as a stream or whole, as that request asked. */
import { type Job, promptsOf } from '../shared/job.ts';
import type { ReplyShape } from './broker-call.ts';
import { Relay } from './relay.ts';
import { decodeReply } from './response-cache.ts';
import { writerFor } from './writer-for.ts';

export const CACHE_STATUS_HEADER = 'x-sluice-cache';

export function cachedReply(
  kept: string,
  { job, reply }: { job: Job; reply: ReplyShape },
  headers: Readonly<Record<string, string>>,
): Promise<Response> {
  const { model, events } = decodeReply(kept, job.id);
  const now = Date.now();
  const relay = new Relay({
    writer: writerFor({
      ...{ id: job.id, submittedAt: job.submittedAt, model, reply, choiceCount: job.choiceCount, serviceClass: job.serviceClass },
      ...{ promptCount: promptsOf(job).length, wantsLogprobs: job.sampling.topLogprobs !== undefined },
    }),
    isSureToFit: true,
    maxBufferedBytes: Number.POSITIVE_INFINITY,
    headers: { ...headers, [CACHE_STATUS_HEADER]: 'hit' },
    onGone: () => undefined,
    now,
  });
  for (const event of events) relay.take(event, now);
  return relay.response;
}
