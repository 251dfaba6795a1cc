/** SourceFile: opens a model's file for whoever reads its header; it stays open when that was good, and is closed when not. */
import { type FileHandle, open } from 'node:fs/promises';
import { ModelError, reasonOf } from './model-error.ts';

/** Throws a ModelError when the file cannot be opened, and what `read` throws. */
export async function openSource<T>(path: string, read: (handle: FileHandle) => Promise<T>): Promise<T> {
  let handle: FileHandle;
  try {
    handle = await open(path, 'r');
  } catch (thrown) {
    throw new ModelError(`${path}: cannot be opened (${reasonOf(thrown)}).`, { cause: thrown });
  }
  try {
    return await read(handle);
  } catch (thrown) {
    await handle.close();
    throw thrown;
  }
}
