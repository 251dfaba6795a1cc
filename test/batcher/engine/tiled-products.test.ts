/** The products of the tiled kernels by every instruction set of this processor, bit for bit beside plain sums (tiled-products.c). */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { compileC, whyNoKernels } from '../../../batcher/engine/kernels/kernel-library.ts';

const run = promisify(execFile);
const KERNELS = join(import.meta.dirname, '../../../batcher/engine/kernels');
const SOURCES = [join(import.meta.dirname, 'tiled-products.c'), ...['tiled-avx2.c', 'tiled-vnni.c'].map(name => join(KERNELS, name))];

it.runIf(whyNoKernels() === undefined)('gives the same bits by every instruction set', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-products-'));
  try {
    const program = join(folder, 'products');
    await compileC(['-O3', `-I${KERNELS}`, '-o', program, ...SOURCES, '-lm']);
    const compared = (await run(program)).stdout.trim().split('\n');
    const hasVnni = /^flags\s*:.* avx512_vnni /m.test(await readFile('/proc/cpuinfo', 'utf8'));
    expect(compared).toEqual(['avx2 164160', ...(hasVnni ? ['vnni 164160'] : [])]);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
