/** FirstAnswer: the proof that the whole path works: one request for one token, or one vector, asked again until it is answered. */
import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from './start-error.ts';

/** A large model takes a while to load. */
const PATIENCE_MS = 300_000;
const TRY_MS = 60_000;
const PAUSE_MS = 50;

export function awaitFirstToken(url: string, key: string, signal: AbortSignal): Promise<void> {
  const body = { model: 'default', messages: [{ role: 'user', content: 'Hi' }], max_tokens: 1, temperature: 0 };
  return awaitAnswer({ url: `${url}/v1/chat/completions`, key, body }, signal);
}

export function awaitFirstVector(url: string, key: string, model: string, signal: AbortSignal): Promise<void> {
  return awaitAnswer({ url: `${url}/v1/embeddings`, key, body: { model, input: 'Hi' } }, signal);
}

async function awaitAnswer({ url, key, body: asked }: { url: string; key: string; body: object }, signal: AbortSignal): Promise<void> {
  const giveUpAt = Date.now() + PATIENCE_MS;
  let last = 'no answer';
  while (Date.now() < giveUpAt) {
    try {
      const response = await fetch(url, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify(asked),
        signal: AbortSignal.any([signal, AbortSignal.timeout(TRY_MS)]),
      });
      const body = await response.text();
      if (response.ok) return;
      last = `${response.status} ${body.slice(0, 300)}`;
      // Until a batcher has shown itself the gateway knows no model (404) or no batcher (503).
      if (response.status !== 503 && response.status !== 404 && response.status !== 429) break;
    } catch (thrown) {
      if (signal.aborted) throw signal.reason;
      last = (thrown as Error).cause instanceof Error ? ((thrown as Error).cause as Error).message : (thrown as Error).message;
    }
    await sleep(PAUSE_MS, undefined, { signal });
  }
  throw new StartError(`The first request was not answered: ${last}`);
}
