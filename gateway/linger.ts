/**
 * Linger: reads on, for a while, what a client sends that was refused already: one that is cut off in the middle of its body never reads why.
 */
import type { MiddlewareHandler } from 'hono';
import type { AppEnv } from './app-env.ts';

/** Of somebody whose key was good. */
const MOST_BYTES = 64 * 1024 * 1024;
const STRANGER_BYTES = 1024 * 1024;
const MOST_MS = 5_000;

/** Outside of all that may answer with the body unread. Small ones too: workerd cuts off a client that is still about to send its body. */
export function lingering(): MiddlewareHandler<AppEnv> {
  return async function lingerOn(c, next) {
    await next();
    // Who asks before it sends (100-continue) has its answer; reading would ask for the body.
    if (c.req.raw.headers.has('expect')) return;
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
  let timer: ReturnType<typeof setTimeout> | null = null;
  const late = new Promise<undefined>(resolve => {
    timer = setTimeout(() => {
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
  } finally {
    clearTimeout(timer);
  }
}
