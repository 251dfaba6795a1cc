/** CCompiler: makes sure of a C compiler for the engine's own kernels: on Debian, as root, installed when there is none. The model runs without, slower. */
import { COMPILERS, whyNoKernels } from '../../batcher/engine/kernels/kernel-library.ts';
import { canInstallFromDebian, installFromDebian } from './debian-package.ts';
import { findProgram } from './executable.ts';

/** Never throws for want of one: `say` tells what is done or missing. */
export async function ensureCompiler(say: (line: string) => void, signal?: AbortSignal): Promise<void> {
  if (whyNoKernels() !== undefined || findProgram(COMPILERS) !== undefined || !canInstallFromDebian()) return;
  say('Installing gcc from Debian (once), for kernels twice as fast …');
  const advice = 'install gcc and libc6-dev yourself';
  try {
    for (const name of ['gcc', 'libc6-dev']) await installFromDebian(name, { advice, signal });
  } catch (thrown) {
    signal?.throwIfAborted();
    say(`${(thrown as Error).message.split('\n')[0]} The model runs on onnxruntime's own kernels.`);
  }
}
