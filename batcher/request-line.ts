/** RequestLine: what the log says of a request that has ended: its names, its numbers and how it went; nothing of its text. */
import { parseTraceparent } from '../shared/trace-context.ts';
import type { Generation } from './generation.ts';

export interface RequestNames {
  jobId: string;
  traceId?: string;
  /** The gateway's span, of which this request is a part. */
  parentSpanId?: string;
}

/** By which its lines are found, here and in the gateway's log. */
export function requestNames(job: { id: string; traceparent?: string | undefined }): RequestNames {
  const parent = parseTraceparent(job.traceparent);
  return { jobId: job.id, ...(parent !== undefined && { traceId: parent.traceId, parentSpanId: parent.spanId }) };
}

type Ended = Pick<Generation, 'job' | 'recipient' | 'endReason' | 'usage' | 'timings'>;

/** `reason` is a finish reason, or the code of an error. */
export function requestLine({ job, recipient, endReason = 'stop', usage, timings }: Ended, now: number): object {
  const { tenant, submittedAt } = job;
  return {
    ...requestNames(job),
    tenant,
    attempt: recipient.attempt,
    reason: endReason,
    ...usage,
    ...timings,
    e2eMs: Math.max(0, now - submittedAt),
  };
}
