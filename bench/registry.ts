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
  bounds: {
    summary: 'what bounds the engine: what it reads and multiplies, beside what the host can',
    load: async () => (await import('./bounds.ts')).boundsBench,
  },
  serve: {
    summary: 'simultaneous streams through the whole path beside the engine alone',
    load: async () => (await import('./serve.ts')).serveBench,
  },
  'first-token': {
    summary: 'what lies between one client and its first token besides the prefill',
    load: async () => (await import('./first-token.ts')).firstTokenBench,
  },
  servers: {
    summary: "whole path, latency and memory beside llama.cpp's own server",
    load: async () => (await import('./servers.ts')).serversBench,
  },
  abort: {
    summary: 'clients that leave: no row, job, key or memory stays behind',
    load: async () => (await import('./abort.ts')).abortBench,
  },
  quality: {
    summary: 'perplexity and agreement with the float32 reference',
    load: async () => (await import('./quality.ts')).qualityBench,
  },
  prefix: {
    summary: 'time to first token with a shared prefix, cold and warm',
    load: async () => (await import('./prefix.ts')).prefixBench,
  },
  interference: {
    summary: 'what a long prefill beside it does to a running stream',
    load: async () => (await import('./interference.ts')).interferenceBench,
  },
  reproducible: {
    summary: 'seeded requests give the same bytes whatever runs beside them; what that costs',
    load: async () => (await import('./reproducible.ts')).reproducibleBench,
  },
  speculative: {
    summary: 'tokens/s of one stream with drafts by prompt look-up and without',
    load: async () => (await import('./speculative.ts')).speculativeBench,
  },
  preemption: {
    summary: "a real trace's lengths in too little KV memory: nothing is lost",
    load: async () => (await import('./preemption.ts')).preemptionBench,
  },
  embeddings: {
    summary: 'texts/s through the whole path, beside transformers.js',
    load: async () => (await import('./embeddings.ts')).embeddingsBench,
  },
  'lm-eval': {
    summary: "a task of EleutherAI's lm-eval through /v1/completions, beside llama.cpp's server",
    load: async () => (await import('./lm-eval.ts')).lmEvalBench,
  },
  guidellm: {
    summary: "the vLLM project's load generator, unchanged: what it measures, and whether it gets every token it asks for",
    load: async () => (await import('./guidellm.ts')).guidellmBench,
  },
  gateway: {
    summary: 'what the gateway itself adds, beside Portkey and LiteLLM',
    load: async () => (await import('./gateway.ts')).gatewayBench,
  },
  'step-cost': {
    summary: 'time of a step outside onnxruntime',
    load: async () => (await import('./step-cost.ts')).stepCostBench,
  },
  structured: {
    summary: 'structured answers: what they cost a step, and whether a hundred schemas are held to',
    load: async () => (await import('./structured.ts')).structuredBench,
  },
  chaos: {
    summary: 'random faults under load: no answer is lost, altered or given twice',
    load: async () => (await import('./chaos.ts')).chaosBench,
  },
  overload: {
    summary: 'many times the capacity: goodput, refusals, memory, recovery',
    load: async () => (await import('./overload.ts')).overloadBench,
  },
  batching: {
    summary: 'continuous against static batching on the same engine',
    load: async () => (await import('./batching.ts')).batchingBench,
  },
  capacity: {
    summary: 'the capacity planner, as npx sluice plan runs it',
    load: async () => (await import('./capacity.ts')).capacityBench,
  },
  plan: {
    summary: 'the capacity planner against a real replay',
    load: async () => (await import('./plan.ts')).planBench,
  },
  replay: {
    summary: 'a real trace at a wanted rate: goodput under latency objectives',
    load: async () => (await import('./replay.ts')).replayBench,
  },
  soak: {
    summary: 'mixed traffic for a long time: memory stays flat',
    load: async () => (await import('./soak.ts')).soakBench,
  },
  fuzz: {
    summary: 'hostile inputs at every place where something is taken in: no crash, no hang, no growth',
    load: async () => (await import('./fuzz.ts')).fuzzBench,
  },
};
