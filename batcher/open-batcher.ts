/** OpenBatcher: the batcher for the model in a folder: one that generates, or one that makes embeddings. */
import type { Logger } from 'pino';
import { type OpenBatcher, openTextBatcher } from './batcher.ts';
import { checkPrepared, isEncoder } from './model/manifest.ts';
import type { BatcherSettings } from './settings.ts';

/** Throws ModelError for a folder that cannot be used. */
export async function openBatcher(settings: BatcherSettings, log: Logger): Promise<OpenBatcher> {
  const check = await checkPrepared(settings.modelDirectory);
  // Loaded only where it is needed.
  if (check.state === 'intact' && isEncoder(check.manifest)) {
    const { openEncoderBatcher } = await import('./encoder/encoder-batcher.ts');
    return openEncoderBatcher(settings, log);
  }
  return openTextBatcher(settings, log);
}
