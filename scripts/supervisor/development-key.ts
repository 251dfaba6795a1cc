/** DevelopmentKey: the one key that a self-started gateway needs, and what it makes other keys with; the same at every start. */
import { keptSecret } from './kept-secret.ts';

/** Name of its file in the data folder, where `npx sluice` finds it too. */
export const DEVELOPMENT_KEY_FILE = 'development-key';

export function developmentKey(folder: string): string {
  return keptSecret(folder, DEVELOPMENT_KEY_FILE, 'sk-sluice-dev-');
}

export function keySecret(folder: string): string {
  return keptSecret(folder, 'key-secret', '');
}
