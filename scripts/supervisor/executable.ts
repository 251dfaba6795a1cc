/** Executable: programs that we may run, at a path or on the search path. */
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

export function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Path of the first of the programs that is found. */
export function findProgram(programs: readonly string[], searchPath = process.env.PATH ?? ''): string | undefined {
  const folders = searchPath.split(delimiter).filter(Boolean);
  return programs.flatMap(program => folders.map(folder => join(folder, program))).find(isExecutable);
}
