/** OpenScratch: the samplers' memory, with the passes of the kernel library where the model has one, and those in WebAssembly where not. */
import { openRowPasses } from './engine/foreign.ts';
import { SamplingScratch } from './sampling/sampling-scratch.ts';

export function openScratch(vocabSize: number, kernelPath: string | undefined): SamplingScratch {
  return new SamplingScratch(vocabSize, kernelPath === undefined ? undefined : bytes => openRowPasses(kernelPath, bytes));
}
