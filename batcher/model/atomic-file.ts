/** AtomicFile: small files that are replaced whole: a reader sees the old content or the new, also after a crash. */
import { randomUUID } from 'node:crypto';
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';

export async function replaceFile(path: string, content: string): Promise<void> {
  const draft = `${path}.${randomUUID()}.draft`;
  try {
    await writeDurably(draft, content);
    await rename(draft, path);
  } catch (thrown) {
    await rm(draft, { force: true });
    throw thrown;
  }
  await syncFolder(dirname(path));
}

/** Writes a new file and waits until it is on the disk. */
export async function writeDurably(path: string, content: string | Uint8Array): Promise<void> {
  await using file = await open(path, 'wx');
  await file.writeFile(content);
  await file.sync();
}

/** After this a rename in the folder survives a crash. */
export async function syncFolder(path: string): Promise<void> {
  let folder: FileHandle;
  try {
    folder = await open(path, 'r');
  } catch {
    // Some systems do not open folders; they have nothing to sync this way.
    return;
  }
  try {
    await folder.sync();
  } catch {
    // The same for syncing them.
  } finally {
    await folder.close();
  }
}
