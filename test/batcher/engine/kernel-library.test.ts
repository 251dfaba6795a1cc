import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { kernelDigest, whyNoKernels, writeKernels } from '../../../batcher/engine/kernels/kernel-library.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sluice-kernels-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

describe('which hosts run the kernels', () => {
  const isLinux = process.platform === 'linux' && process.arch === 'x64';
  it.runIf(isLinux)('those whose processor has all that they use', () => {
    expect(whyNoKernels('processor : 0\nflags\t\t: fpu avx avx2 fma f16c avx512f\n')).toBeUndefined();
  });
  it.runIf(isLinux)('others are told what is missing', () => {
    expect(whyNoKernels('processor : 0\nflags\t\t: fpu avx avx2 sse4_2\n')).toBe('the processor lacks fma, f16c');
    expect(whyNoKernels('')).toBe('the processor lacks avx2, fma, f16c');
  });
});

describe('the library', () => {
  it.runIf(whyNoKernels() === undefined)('is compiled once and copied afterwards', async () => {
    const cache = join(folder, 'cache');
    await writeKernels(join(folder, 'first.so'), cache);
    const kept = join(cache, `${kernelDigest()}.so`);
    expect(await readFile(kept)).toEqual(await readFile(join(folder, 'first.so')));
    const path = process.env.PATH;
    process.env.PATH = folder;
    try {
      await writeKernels(join(folder, 'second.so'), cache);
      await expect(writeKernels(join(folder, 'third.so'), join(folder, 'empty'))).rejects.toThrow(
        'no C compiler (cc, gcc, clang) is installed',
      );
    } finally {
      process.env.PATH = path;
    }
    expect(await readFile(join(folder, 'second.so'))).toEqual(await readFile(kept));
  });
});
