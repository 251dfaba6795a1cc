/** CommonSettings: what every bench that runs a model can be told. */
import os from 'node:os';
import type { SettingSpecs } from './settings.ts';

export const commonSettings = {
  model: { kind: 'text', default: '', help: 'path of a GGUF file; empty for the default model' },
  threads: { kind: 'count', default: os.availableParallelism(), min: 1, max: 1024, help: 'threads of one engine, on every side' },
  kernels: {
    kind: 'text',
    default: 'tiled',
    help: 'operators of our engine: tiled (our own, where the host can) or stock (onnxruntime’s)',
  },
  quality: { kind: 'text', default: 'exact', help: 'of our engine: exact or fast' },
} as const satisfies SettingSpecs;
