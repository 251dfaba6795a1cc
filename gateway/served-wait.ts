/** ServedWait: holds a request while no batcher serves its model, for as long as it may be held, and while its client is there. */
import { ApiError } from '../shared/errors.ts';

const LOOK_MS = 250;

/** What `find` gives as soon as it no longer throws `no_batcher`; after `maxMs`, or when the client has left, that error. */
export async function onceServed<T>(find: () => Promise<T>, bounds: { maxMs: number; signal: AbortSignal }): Promise<T> {
  const deadline = Date.now() + bounds.maxMs;
  for (;;) {
    try {
      return await find();
    } catch (error) {
      const isHeld = isNoBatcher(error) && !bounds.signal.aborted;
      const leftMs = deadline - Date.now();
      if (!isHeld || leftMs <= 0) throw error;
      await new Promise(resolve => setTimeout(resolve, Math.min(LOOK_MS, leftMs)));
    }
  }
}

export function isNoBatcher(error: unknown): boolean {
  return error instanceof ApiError && error.code === 'no_batcher';
}
