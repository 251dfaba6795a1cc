/**
 * Registry: the benches by name, each loaded only when it is run.
 */
import type { Bench } from './bench.ts';
import type { SettingSpecs } from './settings.ts';

export interface Registered {
  summary: string;
  load(): Promise<Bench<SettingSpecs>>;
}

export const BENCHES: Readonly<Record<string, Registered>> = {
  engine: { summary: 'decode and prefill of the engine beside llama.cpp', load: async () => (await import('./engine.ts')).engineBench },
  serve: {
    summary: 'simultaneous streams through the whole path beside the engine alone',
    load: async () => (await import('./serve.ts')).serveBench,
  },
  abort: {
    summary: 'clients that leave: no row, job, key or memory stays behind',
    load: async () => (await import('./abort.ts')).abortBench,
  },
  quality: {
    summary: 'perplexity and agreement with the float32 reference',
    load: async () => (await import('./quality.ts')).qualityBench,
  },
};
