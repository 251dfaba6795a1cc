/** Executable: whether there is a program at a path that we may run. */
import { accessSync, constants } from 'node:fs';

export function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
