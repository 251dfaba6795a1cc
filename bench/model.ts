/**
 * Model: the file that both sides of a bench run, prepared for ours as `npm start` would prepare it.
 */
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { KERNELS, QUALITIES, type WeightsChoice } from '../batcher/model/matrix-form.ts';
import { type PreparedModel, prepareModel } from '../batcher/model/prepare.ts';
import { UsageError } from './settings.ts';

export interface BenchModel extends PreparedModel {
  ggufPath: string;
  /** In words: what the graph's matrices are. */
  weightsText: string;
  /** Of file, engine and runtime, for the report. */
  versions: Record<string, string>;
}

export interface ModelWish {
  /** Path of a GGUF file; empty for the default model. */
  model: string;
  weights?: WeightsChoice;
  /** Our own where the host can, when absent. */
  kernels?: string;
  /** Exact, when absent. */
  quality?: string;
}

export async function benchModel(wish: ModelWish, progress: (line: string) => void): Promise<BenchModel> {
  const kernels = KERNELS.find(name => name === (wish.kernels ?? 'tiled'));
  if (kernels === undefined) throw new UsageError(`--kernels must be ${KERNELS.join(' or ')}, not '${wish.kernels}'`);
  const quality = QUALITIES.find(name => name === (wish.quality ?? 'exact'));
  if (quality === undefined) throw new UsageError(`--quality must be ${QUALITIES.join(' or ')}, not '${wish.quality}'`);
  const say = everyTenth(progress);
  const ggufPath = wish.model === '' ? await defaultModel(say) : wish.model;
  const prepared = await prepareModel(ggufPath, { weights: wish.weights, kernels, quality, onProgress: say, onRebuild: progress });
  const { manifest } = prepared;
  return {
    ...prepared,
    ggufPath,
    weightsText: manifest.quality === 'fast' ? 'fast' : manifest.weights,
    versions: {
      model: `${manifest.source.fileName} sha256 ${manifest.source.sha256.slice(0, 12)}`,
      onnxruntime: await packageVersion('onnxruntime-node'),
      node: process.versions.node,
    },
  };
}

async function defaultModel(onProgress: (done: number, total: number, label: string) => void): Promise<string> {
  const { fetchDefaultModel } = await import('../batcher/model/download.ts');
  return fetchDefaultModel({ onProgress });
}

/** A bar would fill a log; a line for each tenth does not. */
function everyTenth(progress: (line: string) => void): (done: number, total: number, label: string) => void {
  let last = -1;
  return (done, total, label) => {
    const tenth = Math.floor((done / Math.max(total, 1)) * 10);
    if (tenth === last) return;
    last = tenth;
    progress(`model: ${tenth * 10} % (${label})`);
  };
}

async function packageVersion(name: string): Promise<string> {
  const path = createRequire(import.meta.url).resolve(`${name}/package.json`);
  return (JSON.parse(await readFile(path, 'utf8')) as { version: string }).version;
}
