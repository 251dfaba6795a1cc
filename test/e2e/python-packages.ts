/** PythonPackages: packages of PyPI in a folder of their own beside the model cache, installed once; nothing of the machine's Python changes. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { defaultCacheRoot } from '../../batcher/model/cache-root.ts';

const run = promisify(execFile);

/** Value for PYTHONPATH. `requirement` names one package with its exact version, as in `openai==3.57.0`. */
export async function pythonPath(requirement: string): Promise<string> {
  const folder = join(defaultCacheRoot(), 'python', requirement.replaceAll(/[^\w.=-]/g, '_'));
  if (existsSync(folder)) return folder;
  const draft = `${folder}.${process.pid}`;
  await run('python3', ['-m', 'pip', 'install', '--quiet', '--no-input', '--target', draft, requirement], { timeout: 300_000 });
  try {
    await rename(draft, folder);
  } catch {
    // Another run was first.
    await rm(draft, { recursive: true, force: true });
  }
  return folder;
}

/** Standard output of a Python program that sees these packages. Throws with all that it wrote when it fails. */
export async function runPython(
  program: string,
  options: { path: string; args: readonly string[]; folder?: string; timeoutMs?: number },
): Promise<string> {
  const { path, args, folder, timeoutMs = 120_000 } = options;
  const env = { ...process.env, PYTHONPATH: path, PYTHONDONTWRITEBYTECODE: '1' };
  try {
    const { stdout } = await run('python3', ['-c', program, ...args], {
      ...{ env, timeout: timeoutMs, maxBuffer: 64 << 20 },
      ...(folder !== undefined && { cwd: folder }),
    });
    return stdout;
  } catch (thrown) {
    const { stdout = '', stderr = '' } = thrown as { stdout?: string; stderr?: string };
    throw new Error(`The Python program failed.\n${stdout}${stderr}`, { cause: thrown });
  }
}
