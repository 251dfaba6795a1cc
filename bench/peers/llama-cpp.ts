/**
 * LlamaCpp: the peer that every CPU figure is held against, built once for this very CPU into the ignored folder .peers/ from the
 * sources that PyPI's llama-cpp-python ships; and its own batched bench, driven by the same settings as ours.
 * Guarantee: what is reported was built with the flags that are reported; a build that was cut off is begun anew.
 */
import { existsSync } from 'node:fs';
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import { delimiter, join } from 'node:path';
import { findProgram } from '../../scripts/supervisor/executable.ts';
import type { BenchRun } from '../bench.ts';
import type { EngineWork } from '../engine-rate.ts';

const PACKAGE = 'llama-cpp-python';
const VERSION = '0.3.36';
/**
 * The fastest honest form: every instruction set of this CPU, release optimization, its own matrix kernels (llamafile) and weight
 * repacking on, OpenMP as by default. What is off has no part in the arithmetic.
 */
const BUILD_FLAGS = [
  '-DCMAKE_BUILD_TYPE=Release',
  '-DGGML_NATIVE=ON',
  '-DGGML_LLAMAFILE=ON',
  '-DGGML_CPU_REPACK=ON',
  '-DGGML_OPENMP=ON',
  '-DBUILD_SHARED_LIBS=OFF',
  '-DGGML_CCACHE=OFF',
  '-DLLAMA_OPENSSL=OFF',
  '-DLLAMA_BUILD_TESTS=OFF',
  '-DLLAMA_BUILD_EXAMPLES=OFF',
  '-DLLAMA_BUILD_APP=OFF',
  '-DLLAMA_BUILD_UI=OFF',
  '-DLLAMA_USE_PREBUILT_UI=OFF',
];

/** What can be built: its batched bench, and its server (a few minutes more). */
export type LlamaProgram = 'llama-batched-bench' | 'llama-server';

export interface LlamaCpp {
  programPath: string;
  /** For the report: what was built, by what, how. */
  version: string;
  buildFlags: readonly string[];
}

interface Stamp {
  version: string;
  buildFlags: readonly string[];
  cpuModel: string;
  programs: readonly LlamaProgram[];
}

/** The built program; builds it first when this CPU has none (minutes, once). */
export async function installLlamaCpp(run: Pick<BenchRun, 'progress' | 'children'>, program: LlamaProgram): Promise<LlamaCpp> {
  const folder = join(import.meta.dirname, '..', '..', '.peers', `llama-cpp-${VERSION}`);
  const stampPath = join(folder, 'built.json');
  const cpuModel = os.cpus()[0]?.model ?? 'unknown';
  let stamp = await readStamp(stampPath);
  if (!stamp || stamp.cpuModel !== cpuModel || String(stamp.buildFlags) !== String(BUILD_FLAGS)) {
    await rm(folder, { recursive: true, force: true });
    stamp = { version: await configure(folder, run), buildFlags: BUILD_FLAGS, cpuModel, programs: [] };
    await writeStamp(stampPath, stamp);
  }
  if (!stamp.programs.includes(program)) {
    await build(folder, program, run);
    stamp = { ...stamp, programs: [...stamp.programs, program] };
    await writeStamp(stampPath, stamp);
  }
  return { programPath: join(folder, 'build', 'bin', program), version: stamp.version, buildFlags: stamp.buildFlags };
}

async function readStamp(path: string): Promise<Stamp | undefined> {
  try {
    const stamp = JSON.parse(await readFile(path, 'utf8')) as Stamp;
    // One of an older version of this file has another form.
    return Array.isArray(stamp.programs) ? stamp : undefined;
  } catch {
    return undefined; // the first time
  }
}

async function writeStamp(path: string, stamp: Stamp): Promise<void> {
  await writeFile(`${path}.part`, JSON.stringify(stamp));
  await rename(`${path}.part`, path);
}

/** Sources and build folder; returns the version in words. */
async function configure(folder: string, { progress, children }: Pick<BenchRun, 'progress' | 'children'>): Promise<string> {
  await mkdir(folder, { recursive: true });
  progress(`llama.cpp: fetching the sources of ${PACKAGE} ${VERSION}`);
  const pip = ['-m', 'pip', 'download', '--quiet', '--no-deps', '--no-binary', PACKAGE, '--dest', folder, `${PACKAGE}==${VERSION}`];
  await children.run('python3', pip);
  const unpacked = `llama_cpp_python-${VERSION}`;
  const archive = join(folder, `${unpacked}.tar.gz`);
  await children.run('tar', ['-xzf', archive, '-C', folder, '--strip-components=2', `${unpacked}/vendor/llama.cpp`]);
  await rm(archive);
  const source = join(folder, 'llama.cpp');
  const env = await buildEnvironment(folder, { progress, children });
  const { stdout } = await children.run('cmake', ['-S', source, '-B', join(folder, 'build'), ...BUILD_FLAGS], { env });
  const own = stdout.match(/llama\.cpp version: (\S+)/)?.[1] ?? 'unknown';
  const ggml = stdout.match(/ggml version: (\S+)/)?.[1] ?? 'unknown';
  return `${own} (ggml ${ggml}, sources of ${PACKAGE} ${VERSION})`;
}

async function build(
  folder: string,
  program: LlamaProgram,
  { progress, children }: Pick<BenchRun, 'progress' | 'children'>,
): Promise<void> {
  const jobs = String(os.availableParallelism());
  progress(`llama.cpp: building ${program} for this CPU with ${jobs} jobs; this takes minutes, once`);
  const env = await buildEnvironment(folder, { progress, children });
  await children.run('cmake', ['--build', join(folder, 'build'), '--parallel', jobs, '--target', program], { env });
}

/** With cmake on the search path: the machine's own, else PyPI's in a folder of ours. The compiler must be there. */
async function buildEnvironment(
  folder: string,
  { progress, children }: Pick<BenchRun, 'progress' | 'children'>,
): Promise<NodeJS.ProcessEnv> {
  const path = process.env.PATH ?? '';
  if (findProgram(['c++'], path) === undefined && !process.env.CXX) {
    throw new Error('llama.cpp is built from source and needs a C++ compiler (Debian: apt-get install g++ make)');
  }
  if (findProgram(['cmake'], path) !== undefined) return process.env;
  const tools = join(folder, 'tools');
  if (!existsSync(join(tools, 'bin', 'cmake'))) {
    progress('llama.cpp: fetching cmake');
    await children.run('python3', ['-m', 'venv', tools]);
    await children.run(join(tools, 'bin', 'python'), ['-m', 'pip', 'install', '--quiet', 'cmake']);
  }
  return { ...process.env, PATH: `${join(tools, 'bin')}${delimiter}${path}` };
}

export interface LlamaTask {
  modelPath: string;
  threads: number;
  work: EngineWork;
}

/**
 * Tokens/s by llama.cpp's own batched bench: for decode the prompt is computed once and copied to every sequence (-pps), then all decode
 * together, each with a cache of its own and logits for every row, which is what our side does.
 */
export async function measureLlamaCpp(peer: LlamaCpp, run: Pick<BenchRun, 'children'>, task: LlamaTask): Promise<number> {
  const { work, threads } = task;
  const args = ['-m', task.modelPath, '-t', String(threads), '-tb', String(threads), '--output-format', 'jsonl'];
  const measure = async (more: readonly string[]) => lastRow((await run.children.run(peer.programPath, [...args, ...more])).stdout);
  if (work.kind === 'decode') {
    const cacheTokens = (work.contextTokens + work.stepCount) * work.batch;
    const shape = ['-npp', String(work.contextTokens), '-ntg', String(work.stepCount), '-npl', String(work.batch)];
    return (work.batch * work.stepCount) / (await measure(['-c', String(cacheTokens), '-pps', ...shape])).t_tg;
  }
  // Twice: only the second prompt finds every page touched.
  const shape = ['-npp', String(work.promptTokens), '-ntg', '1', '-npl', '1,1'];
  return work.promptTokens / (await measure(['-c', String(work.promptTokens + 1), ...shape])).t_pp;
}

interface BatchedBenchRow {
  /** Seconds of prompt processing and of token generation. */
  t_pp: number;
  t_tg: number;
}

function lastRow(text: string): BatchedBenchRow {
  const line = text.split('\n').findLast(candidate => candidate.startsWith('{'));
  if (line === undefined) throw new Error(`llama.cpp's bench printed no figures:\n${text.slice(-500)}`);
  return JSON.parse(line) as BatchedBenchRow;
}
