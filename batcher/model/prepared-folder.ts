/**
 * PreparedFolder: how a prepared model gets into the cache: built in a draft folder beside the others, then renamed into place.
 * A reader never sees half of one; of several that prepare the same model at once the first wins and the others use its work. A model that is
 * prepared anew, by another version of the product, clears away what earlier ones made of it and nobody has used since.
 */
import { createHash, randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { hostname } from 'node:os';
import { basename, join } from 'node:path';
import { syncFolder } from './atomic-file.ts';
import { checkPrepared } from './manifest.ts';
import { ModelError, reasonOf } from './model-error.ts';

export const VOCABULARY_FILE = 'vocabulary.json';
const DRAFT_PREFIX = '.draft-';
/** A draft that nobody has written to for so long is left over from a crash. */
const ABANDONED_AFTER_MS = 60 * 60_000;
const DISUSED_AFTER_MS = 30 * 24 * 60 * 60_000;

/** A new draft folder in the cache's folder of models. */
export async function createDraft(modelsRoot: string): Promise<string> {
  await mkdir(modelsRoot, { recursive: true });
  await removeAbandonedDrafts(modelsRoot);
  const draft = join(modelsRoot, `${DRAFT_PREFIX}${hostKey()}-${process.pid}-${randomUUID().slice(0, 8)}`);
  await mkdir(draft);
  return draft;
}

/** Puts a finished draft in place; a damaged folder there makes way, an intact one stays and the draft goes. */
export async function publishDraft(draft: string, modelsRoot: string, directory: string): Promise<void> {
  await syncFolder(draft);
  for (;;) {
    try {
      await rename(draft, directory);
      await syncFolder(modelsRoot);
      await removeDisused(modelsRoot, directory);
      return;
    } catch (thrown) {
      if (!isOccupied(thrown)) throw thrown;
    }
    if ((await checkPrepared(directory)).state === 'intact') {
      await rm(draft, { recursive: true, force: true });
      return;
    }
    // Named like a draft, so that it is cleared away later if this process ends here. Another preparer may have moved it first.
    const aside = join(modelsRoot, `${DRAFT_PREFIX}${hostKey()}-${process.pid}-${randomUUID().slice(0, 8)}`);
    await rename(directory, aside).catch(thrown => {
      if ((thrown as NodeJS.ErrnoException).code !== 'ENOENT') throw thrown;
    });
    await rm(aside, { recursive: true, force: true });
  }
}

/** The vocabulary of a prepared folder, as it was written there. */
export async function readVocabularyFile<T>(directory: string): Promise<T> {
  try {
    return JSON.parse(await readFile(join(directory, VOCABULARY_FILE), 'utf8')) as T;
  } catch (thrown) {
    throw new ModelError(`${directory}: its vocabulary cannot be read (${reasonOf(thrown)}); preparing the model again repairs it.`, {
      cause: thrown,
    });
  }
}

function isOccupied(thrown: unknown): boolean {
  const { code } = thrown as NodeJS.ErrnoException;
  return code === 'ENOTEMPTY' || code === 'EEXIST';
}

async function removeAbandonedDrafts(modelsRoot: string): Promise<void> {
  for (const name of await readdir(modelsRoot)) {
    if (!name.startsWith(DRAFT_PREFIX)) continue;
    const [host, pid] = name.slice(DRAFT_PREFIX.length).split('-');
    const path = join(modelsRoot, name);
    const isOrphan = host === hostKey() && !isRunning(Number(pid));
    const isAbandoned = isOrphan || Date.now() - (await lastWrite(path)) > ABANDONED_AFTER_MS;
    if (isAbandoned) await rm(path, { recursive: true, force: true });
  }
}

/** Of the same model: folders are named for it, with a digest of all that makes them differ behind the last hyphen. */
async function removeDisused(modelsRoot: string, published: string): Promise<void> {
  const modelOf = (name: string) => name.replace(/-[0-9a-f]+$/, '');
  for (const name of await readdir(modelsRoot)) {
    const path = join(modelsRoot, name);
    if (path === published || modelOf(name) !== modelOf(basename(published))) continue;
    const usedAt = await stat(path).then(
      found => found.mtimeMs,
      () => Number.POSITIVE_INFINITY,
    );
    // One that cannot be removed harms nobody.
    if (Date.now() - usedAt > DISUSED_AFTER_MS) await rm(path, { recursive: true, force: true }).catch(() => undefined);
  }
}

async function lastWrite(folder: string): Promise<number> {
  const paths = [folder, ...(await readdir(folder).catch(() => [])).map(name => join(folder, name))];
  const times = await Promise.all(
    paths.map(path =>
      stat(path).then(
        found => found.mtimeMs,
        () => 0,
      ),
    ),
  );
  return Math.max(...times);
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (thrown) {
    return (thrown as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Process numbers mean something on one host only; containers have names of their own. */
function hostKey(): string {
  return createHash('sha256').update(hostname()).digest('hex').slice(0, 8);
}
