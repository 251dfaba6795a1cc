/** FairQueue: where among the waiting a job stands. Lower comes first; within one priority BullMQ keeps the order of arrival. */
import type { Job, ServiceClass } from '../shared/job.ts';

/** BullMQ takes priorities from 1 to 2^21 and ranks a job without one above all of them. Each class has a third of the range. */
const CLASS_PRIORITY: Record<ServiceClass, number> = { priority: 1, default: 700_000, flex: 1_400_000 };

export function priorityOf(job: Pick<Job, 'serviceClass'>): number {
  return CLASS_PRIORITY[job.serviceClass];
}
