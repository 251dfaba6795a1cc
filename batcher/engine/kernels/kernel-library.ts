/**
 * KernelLibrary: our own operators (the C files beside this one) as a library for onnxruntime, made on the host by its C compiler. Hosts without one, or with
 * another kind of processor, run onnxruntime's own operators.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { copyFile, mkdir, rename } from 'node:fs/promises';
import { dirname, join } from 'node:path';

const SOURCES = ['tiled.c', 'tiled-avx2.c', 'tiled-vnni.c', 'attention.c', 'rows.c', 'library.c'].map(name =>
  join(import.meta.dirname, name),
);
const HEADERS = ['lanes.h', 'operator.h', 'tiled.h', 'tiled-products.h', 'vector.h'].map(name => join(import.meta.dirname, name));
const FLAGS = ['-O3', '-fvisibility=hidden', '-shared', '-fPIC', '-Wl,-z,now', '-o'] as const;
/** Debian's alternatives first, then what a bare toolchain has. */
export const COMPILERS = ['cc', 'gcc', 'clang'] as const;
const NEEDED_FLAGS = ['avx2', 'fma', 'f16c'] as const;

/** Changes with the source and the way it is compiled. */
export function kernelDigest(): string {
  const digest = createHash('sha256').update(FLAGS.join(' '));
  for (const path of [...SOURCES, ...HEADERS]) digest.update(readFileSync(path));
  return digest.digest('hex').slice(0, 12);
}

/** Undefined where this host can run the kernels; else why not, as the end of a sentence. */
export function whyNoKernels(cpuInfo?: string): string | undefined {
  if (process.platform !== 'linux' || process.arch !== 'x64') return `they are for x64 Linux, this is ${process.arch} ${process.platform}`;
  const flags = new Set(/^flags\s*:(.*)$/m.exec(cpuInfo ?? readFileSync('/proc/cpuinfo', 'utf8'))?.[1]?.split(' '));
  const missing = NEEDED_FLAGS.filter(flag => !flags.has(flag));
  return missing.length === 0 ? undefined : `the processor lacks ${missing.join(', ')}`;
}

/** Writes the library to `path`, compiled now or earlier. Throws an Error that says why where no compiler makes it. */
export async function writeKernels(path: string, cacheFolder: string): Promise<void> {
  const cached = join(cacheFolder, `${kernelDigest()}.so`);
  if (await isCopied(cached, path)) return;
  await compileC([...FLAGS, path, ...SOURCES, '-lm']);
  // Only the next preparation is slower where this cannot be kept.
  await keep(path, cached).catch(() => undefined);
}

async function isCopied(from: string, to: string): Promise<boolean> {
  return copyFile(from, to).then(
    () => true,
    () => false,
  );
}

async function keep(path: string, cached: string): Promise<void> {
  await mkdir(dirname(cached), { recursive: true });
  const draft = `${cached}.${process.pid}`;
  await copyFile(path, draft);
  await rename(draft, cached);
}

/** By the first compiler that makes it. Throws an Error that says why none does. */
export async function compileC(options: readonly string[]): Promise<void> {
  let reason = `no C compiler (${COMPILERS.join(', ')}) is installed`;
  for (const compiler of COMPILERS) {
    const outcome = await compile(compiler, options);
    if (outcome === 'done') return;
    if (outcome !== 'absent') reason = outcome.complaint;
  }
  throw new Error(reason);
}

function compile(compiler: string, options: readonly string[]): Promise<'done' | 'absent' | { complaint: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(compiler, options, { stdio: ['ignore', 'ignore', 'pipe'] });
    let complaint = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      complaint = (complaint + text).slice(0, 4096);
    });
    child.on('error', thrown => {
      if ((thrown as NodeJS.ErrnoException).code === 'ENOENT') resolve('absent');
      else reject(thrown);
    });
    child.on('close', code => {
      if (code === 0) resolve('done');
      else
        resolve({
          complaint: `${compiler} ended with code ${code}: ${complaint.split('\n').find(line => /error/.test(line)) ?? complaint.trim()}`,
        });
    });
  });
}
