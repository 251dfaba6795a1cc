/** DebianProgram: a program that some tests need: the machine's own, on Debian, as root, installed when there is none. */
import { canInstallFromDebian, installFromDebian } from '../scripts/supervisor/debian-package.ts';
import { findProgram } from '../scripts/supervisor/executable.ts';

/** Path of the first program that is there; undefined, with a line that says so, where there is none and none may be installed. */
export async function debianProgram(packageName: string, programs: readonly string[] = [packageName]): Promise<string | undefined> {
  const found = findProgram(programs);
  if (found !== undefined) return found;
  if (!canInstallFromDebian()) {
    process.stderr.write(`Skipped: tests that need ${packageName}, which is missing (apt-get install ${packageName}).\n`);
    return undefined;
  }
  process.stderr.write(`Installing ${packageName} from Debian (once) …\n`);
  await installFromDebian(packageName, { advice: `install ${packageName} yourself` });
  return findProgram(programs);
}
