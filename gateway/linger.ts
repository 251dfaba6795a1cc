/**
 * Linger: reads on, for a while, what a client sends that was refused already: one that is cut off in the middle of its body never reads why.
 */
import type { MiddlewareHandler } from 'hono';
import type { AppEnv } from './app-env.ts';

/** Of somebody whose key was good. */
const MOST_BYTES = 64 * 1024 * 1024;
const STRANGER_BYTES = 1024 * 1024;
/** Of so much the runtime reads what is left by itself. */
const SMALL_BYTES = 64 * 1024;
const MOST_MS = 5_000;

/** Outside of all that may refuse a body unread. */
export function lingering(): MiddlewareHandler<AppEnv> {
  return async function lingerOn(c, next) {
    await next();
    if (c.res.ok || Number(c.req.raw.headers.get('content-length') ?? Number.POSITIVE_INFINITY) <= SMALL_BYTES) return;
    const isKnown = c.get('caller') !== undefined || c.get('administrator') !== undefined;
    await discardBody(c.req.raw, isKnown ? MOST_BYTES : STRANGER_BYTES);
  };
}

/** Of a body that nobody has begun to read. */
export async function discardBody({ body, bodyUsed }: Request, mostBytes = MOST_BYTES): Promise<void> {
  if (body === null || body.locked || bodyUsed) return;
  await discard((body as ReadableStream<Uint8Array>)[Symbol.asyncIterator](), mostBytes);
}

/** Ends when nothing more comes, when it was enough, or when it takes too long. Never throws. */
export async function discard(pieces: AsyncIterator<Uint8Array>, mostBytes = MOST_BYTES): Promise<void> {
  let isLate = false;
  const late = new Promise<undefined>(resolve => {
    setTimeout(() => {
      isLate = true;
      resolve(undefined);
    }, MOST_MS);
  });
  let bytes = 0;
  try {
    while (!isLate && bytes <= mostBytes) {
      const next = await Promise.race([pieces.next(), late]);
      if (next === undefined || next.done === true) return;
      bytes += next.value.length;
    }
  } catch {
    // Its client has left.
  }
}
