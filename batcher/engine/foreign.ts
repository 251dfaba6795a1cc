/**
 * Foreign: every C function that the batcher calls, onnxruntime's C API and the system's memory calls, behind typed functions;
 * the only file that knows koffi. A failing call throws an Error that names the operation.
 *
 * Addresses are bigints. The libraries stay loaded for the life of the process: koffi would unload them with the last reference.
 */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import koffi from 'koffi';
import type { RowKernels } from '../sampling/row-kernels.ts';

export type Address = bigint;

// biome-ignore lint/suspicious/noExplicitAny: the foreign function interface has no static types
type Foreign = any;

// ---- system memory -------------------------------------------------------------------------------------------------

const PROT_READ_WRITE = 3;
/** MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE: pages cost memory only once they are touched. */
const MAP_FLAGS = 0x2 | 0x20 | 0x4000;
const MADV_DONTNEED = 4;
const MADV_NOHUGEPAGE = 15;
export const PAGE_BYTES = 4096;

const system: Foreign = koffi.load(null);
const mmap: Foreign = system.func('void* mmap(void* address, size_t bytes, int protection, int flags, int file, int64_t offset)');
const munmap: Foreign = system.func('int munmap(void* address, size_t bytes)');
const madvise: Foreign = system.func('int madvise(void* address, size_t bytes, int advice)');
const memcpy: Foreign = system.func('void* memcpy(void* to, void* from, size_t bytes)');

/** Zeroed memory, page-aligned, that does not move; untouched pages cost address space only. */
export function mapMemory(bytes: number): Address {
  const address = BigInt(mmap(null, bytes, PROT_READ_WRITE, MAP_FLAGS, -1, 0));
  // mmap says MAP_FAILED, which is all ones.
  if (BigInt.asIntN(64, address) === -1n) throw new Error(`mmap: cannot map ${bytes} bytes`);
  return address;
}

/** No huge pages, of which a few tokens would fill one whole, in each plane; a kernel that has none says no, which is the same. */
export function keepPagesSmall(address: Address, bytes: number): void {
  madvise(address, bytes, MADV_NOHUGEPAGE);
}

export function unmapMemory(address: Address, bytes: number): void {
  if (munmap(address, bytes) !== 0) throw new Error(`munmap: cannot unmap ${bytes} bytes`);
}

/** Gives the whole pages within [address, address + bytes) back to the system; they read as zero afterwards. */
export function releasePages(address: Address, bytes: number): void {
  const start = (address + BigInt(PAGE_BYTES - 1)) & ~BigInt(PAGE_BYTES - 1);
  const end = (address + BigInt(bytes)) & ~BigInt(PAGE_BYTES - 1);
  if (end <= start) return;
  if (madvise(start, Number(end - start), MADV_DONTNEED) !== 0) throw new Error(`madvise: cannot release ${end - start} bytes`);
}

export function copyMemory(to: Address, from: Address, bytes: number): void {
  memcpy(to, from, bytes);
}

/** Mapped memory as an ArrayBuffer; the caller keeps it from being used after unmapMemory. */
export function viewMemory(address: Address, bytes: number): ArrayBuffer {
  return koffi.view(address, bytes);
}

// ---- passes over rows of logits -----------------------------------------------------------------------------------

/** The passes of a kernel library, on new memory of `bytes`, which stays for the life of the process. */
export function openRowPasses(libraryPath: string, bytes: number): { kernels: RowKernels; buffer: ArrayBuffer } {
  const library: Foreign = koffi.load(libraryPath);
  const base = mapMemory(bytes);
  const at = (address: number): Address => base + BigInt(address);
  const load: Foreign = library.func('void sluice_load(void* source, int32_t length, void* row, int32_t count, void* maxima)');
  const maxima: Foreign = library.func('void sluice_block_maxima(void* row, int32_t count, void* maxima)');
  const weigh: Foreign = library.func('void sluice_weigh(void* row, int32_t count, float max, float scale, void* weights, void* sums)');
  const above: Foreign = library.func('void sluice_sum_above(void* row, int32_t count, float least, void* weights, void* sums)');
  const distances: Foreign = library.func('double sluice_sum_distances(void* row, int32_t count, float max, void* weights)');
  const collect: Foreign = library.func('int32_t sluice_collect(void* row, int32_t count, float least, void* maxima, void* ids)');
  const masses: Foreign = library.func(
    'void sluice_bin_masses(void* row, int32_t count, float max, float scale, void* weights, void* maxima, void* masses)',
  );
  const collectBin: Foreign = library.func(
    'int32_t sluice_collect_bin(void* row, int32_t count, float max, float scale, int32_t bin, void* maxima, void* ids)',
  );
  return {
    buffer: viewMemory(base, bytes),
    kernels: {
      load: (source, row, count, to) => load(source, source.length, at(row), count, at(to)),
      blockMaxima: (row, count, to) => maxima(at(row), count, at(to)),
      weigh: (row, count, max, scale, weights, sums) => weigh(at(row), count, max, scale, at(weights), at(sums)),
      sumAbove: (row, count, least, weights, sums) => above(at(row), count, least, at(weights), at(sums)),
      sumDistances: (row, count, max, weights) => distances(at(row), count, max, at(weights)),
      collect: (row, count, least, from, ids) => collect(at(row), count, least, at(from), at(ids)),
      binMasses: (row, count, max, scale, weights, from, to) => masses(at(row), count, max, scale, at(weights), at(from), at(to)),
      collectBin: (row, count, max, scale, bin, from, ids) => collectBin(at(row), count, max, scale, bin, at(from), at(ids)),
    },
  };
}

// ---- onnxruntime ---------------------------------------------------------------------------------------------------

export type TensorType = 'float32' | 'float16' | 'int32' | 'int64';
const ELEMENT_TYPES: Record<TensorType, number> = { float32: 1, float16: 10, int32: 6, int64: 7 };
const ELEMENT_BYTES: Record<TensorType, number> = { float32: 4, float16: 2, int32: 4, int64: 8 };

export interface SessionOptions {
  graphPath: string;
  /** Library of the operators that the graph needs besides onnxruntime's. */
  kernelPath?: string | undefined;
  /** Threads within an operator, the calling one included. */
  threads: number;
  /**
   * Idle pool threads spin instead of sleeping: faster steps, but a busy core while the engine works. `brief`: for SPIN_MICROS within a run and never
   * between two, enough for what comes right after; other processes lose next to nothing.
   */
  spinning: boolean | 'brief';
  /** Where onnxruntime's profiler writes, when wanted. */
  profilePrefix?: string;
}

/** From one operator's parallel part to the next it is mostly less (measured: longer gains no more, and costs where others work). */
const SPIN_MICROS = 20;

/** The arrays of one Run call, laid out once in foreign memory: names and values of inputs and outputs. */
export interface RunArguments {
  inputNames: Address;
  inputs: Address;
  inputCount: number;
  outputNames: Address;
  outputs: Address;
  outputCount: number;
}

const ORT_API_VERSION = 20;

/** The library that the npm package onnxruntime-node ships for this machine. */
function libraryPath(): string {
  const root = dirname(createRequire(import.meta.url).resolve('onnxruntime-node/package.json'));
  const folder = join(root, 'bin', 'napi-v6', process.platform, process.arch);
  const names = { linux: 'libonnxruntime.so.1', darwin: 'libonnxruntime.1.dylib', win32: 'onnxruntime.dll' } as Record<string, string>;
  const path = join(folder, names[process.platform] ?? '');
  if (!existsSync(path)) throw new Error(`onnxruntime: no library for ${process.platform}/${process.arch} in package onnxruntime-node`);
  return path;
}

/** onnxruntime's C API, one for the process; every method throws with the operation's name. */
export class OnnxRuntime {
  static #instance: OnnxRuntime | undefined;

  static get(): OnnxRuntime {
    OnnxRuntime.#instance ??= new OnnxRuntime();
    return OnnxRuntime.#instance;
  }

  readonly #api: Foreign;
  readonly #library: Foreign;
  readonly #environment: Foreign;
  readonly #memoryInfo: Foreign;
  readonly #run: Foreign;
  readonly #createTensor: Foreign;
  readonly #releaseValue: Foreign;
  readonly #errorMessage: Foreign;
  readonly #releaseStatus: Foreign;

  private constructor() {
    this.#library = koffi.load(libraryPath());
    const base = this.#library.func('void* OrtGetApiBase()')();
    this.#api = koffi.call(koffi.decode(base, 'void*'), koffi.proto('void* OrtGetApi(uint32_t version)'), ORT_API_VERSION);
    this.#errorMessage = this.#entry(2, 'const char* OrtGetErrorMessage(void* status)');
    this.#releaseStatus = this.#entry(93, 'void OrtReleaseStatus(void* status)');
    const createEnvironment = this.#entry(3, 'void* OrtCreateEnv(int level, const char* id, _Out_ void** out)');
    const createCpuMemory = this.#entry(69, 'void* OrtCreateCpuMemoryInfo(int allocator, int type, _Out_ void** out)');
    this.#createTensor = this.#entry(
      49,
      'void* OrtCreateTensorWithData(void* memory, void* data, size_t bytes, int64_t* shape, size_t rank, int type, _Out_ void** out)',
    );
    this.#releaseValue = this.#entry(96, 'void OrtReleaseValue(void* value)');
    this.#run = this.#entry(
      9,
      'void* OrtRun(void* session, void* options, void* inNames, void* ins, size_t inCount, void* outNames, size_t outCount, void* outs)',
    );
    const errorsOnly = 3;
    this.#environment = this.#out('CreateEnv', slot => createEnvironment(errorsOnly, 'sluice', slot));
    this.#memoryInfo = this.#out('CreateCpuMemoryInfo', slot => createCpuMemory(1, 0, slot));
  }

  openSession(options: SessionOptions): Address {
    const create = this.#entry(10, 'void* OrtCreateSessionOptions(_Out_ void** out)');
    const release = this.#entry(100, 'void OrtReleaseSessionOptions(void* options)');
    const settings = this.#out('CreateSessionOptions', slot => create(slot));
    try {
      const setOptimization = this.#entry(23, 'void* OrtSetGraphOptimization(void* options, int level)');
      const setThreads = this.#entry(24, 'void* OrtSetIntraOpNumThreads(void* options, int count)');
      const addEntry = this.#entry(130, 'void* OrtAddSessionConfigEntry(void* options, const char* key, const char* value)');
      const everyOptimization = 99;
      this.#check('SetSessionGraphOptimizationLevel', setOptimization(settings, everyOptimization));
      this.#check('SetIntraOpNumThreads', setThreads(settings, options.threads));
      const configure = (key: string, value: string) => this.#check('AddSessionConfigEntry', addEntry(settings, key, value));
      configure('session.intra_op.allow_spinning', options.spinning === false ? '0' : '1');
      if (options.spinning === 'brief') {
        configure('session.intra_op.spin_duration_us', String(SPIN_MICROS));
        configure('session.force_spinning_stop', '1');
      }
      if (options.kernelPath !== undefined) {
        const register = this.#entry(228, 'void* OrtRegisterCustomOpsLibrary_V2(void* options, const char* path)');
        this.#check('RegisterCustomOpsLibrary', register(settings, options.kernelPath));
      }
      if (options.profilePrefix !== undefined) {
        const enableProfiling = this.#entry(14, 'void* OrtEnableProfiling(void* options, const char* prefix)');
        this.#check('EnableProfiling', enableProfiling(settings, options.profilePrefix));
      }
      const createSession = this.#entry(7, 'void* OrtCreateSession(void* env, const char* path, void* options, _Out_ void** out)');
      return this.#out('CreateSession', slot => createSession(this.#environment, options.graphPath, settings, slot));
    } finally {
      release(settings);
    }
  }

  closeSession(session: Address): void {
    this.#entry(95, 'void OrtReleaseSession(void* session)')(session);
  }

  /** A tensor over foreign memory that the caller owns and keeps until releaseTensor. */
  createTensor(type: TensorType, data: Address, dims: readonly number[]): Address {
    const bytes = dims.reduce((product, dim) => product * dim, ELEMENT_BYTES[type]);
    const shape = BigInt64Array.from(dims.length > 0 ? dims : [0], BigInt);
    return this.#out('CreateTensorWithDataAsOrtValue', slot =>
      this.#createTensor(this.#memoryInfo, data, bytes, shape, dims.length, ELEMENT_TYPES[type], slot),
    );
  }

  releaseTensor(value: Address): void {
    this.#releaseValue(value);
  }

  /** Runs off the event loop. All that `call` points to must stay in place until it settles. */
  run(session: Address, call: RunArguments): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#run.async(
        session,
        null,
        call.inputNames,
        call.inputs,
        call.inputCount,
        call.outputNames,
        call.outputCount,
        call.outputs,
        (failure: unknown, status: unknown) => {
          try {
            if (failure) throw failure;
            this.#check('Run', status);
            resolve();
          } catch (error) {
            reject(error);
          }
        },
      );
    });
  }

  /** The function at `index` of struct OrtApi; the order of its fields never changes. */
  #entry(index: number, signature: string): Foreign {
    const pointerBytes = 8;
    const prototype = cachedPrototype(signature);
    return koffi.decode(koffi.decode(this.#api, index * pointerBytes, 'void*'), prototype);
  }

  #check(operation: string, status: unknown): void {
    if (!status) return;
    const message = String(this.#errorMessage(status));
    this.#releaseStatus(status);
    throw new Error(`onnxruntime ${operation}: ${message}`);
  }

  #out(operation: string, call: (slot: Foreign[]) => unknown): Address {
    const slot: Foreign[] = [null];
    this.#check(operation, call(slot));
    return BigInt(slot[0]);
  }
}

const prototypes = new Map<string, Foreign>();

/** koffi keeps a prototype's name for ever, so each is made once. */
function cachedPrototype(signature: string): Foreign {
  let prototype = prototypes.get(signature);
  if (prototype === undefined) {
    prototype = koffi.proto(signature);
    prototypes.set(signature, prototype);
  }
  return prototype;
}
