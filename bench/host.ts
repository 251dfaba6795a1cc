/**
 * Host: the facts about this machine without which a figure means nothing. Read once, at the start of a run.
 */
import { readFileSync } from 'node:fs';
import os from 'node:os';

export interface Host {
  cpuModel: string;
  /** Instruction sets that decide which kernels run, of those this CPU has. */
  cpuFlags: string[];
  coreCount: number;
  memoryBytes: number;
  platform: string;
  /** One-minute load average before the run; on an idle machine well under 0.5. */
  loadAverage: number;
}

const DECISIVE_FLAGS = [
  'avx2',
  'fma',
  'f16c',
  'avx_vnni',
  'avx512f',
  'avx512bw',
  'avx512_vnni',
  'avx512_bf16',
  'amx_int8',
  'amx_bf16',
  // arm64
  'asimddp',
  'i8mm',
  'sve',
];

export function readHost(): Host {
  const cpus = os.cpus();
  return {
    cpuModel: cpus[0]?.model ?? 'unknown',
    cpuFlags: cpuFlags(),
    coreCount: os.availableParallelism(),
    memoryBytes: os.totalmem(),
    platform: `${os.platform()} ${os.release()} ${os.arch()}`,
    loadAverage: os.loadavg()[0] ?? 0,
  };
}

function cpuFlags(): string[] {
  let text: string;
  try {
    text = readFileSync('/proc/cpuinfo', 'utf8');
  } catch {
    return []; // not Linux: the model's name must do
  }
  const flags = new Set(
    text
      .match(/^(?:flags|Features)\s*:(.*)$/m)?.[1]
      ?.trim()
      .split(/\s+/),
  );
  return DECISIVE_FLAGS.filter(flag => flags.has(flag));
}
