/** EngineOptions: the engine of a prepared model, for those who measure it: the model's whole context in each row (memory comes with use). */
import type { KvType } from '../engine/engine.ts';
import type { OrtEngineOptions } from '../engine/ort-engine.ts';
import { defaultKvType, graphPathOf, type PreparedModel } from './prepare.ts';

const BLOCK_TOKENS = 16;

export interface EngineRun {
  threads: number;
  rowCount: number;
  /** Default: as the batcher takes it. */
  kvType?: KvType;
}

export function engineOptions(prepared: Pick<PreparedModel, 'directory' | 'manifest' | 'kernelPath'>, run: EngineRun): OrtEngineOptions {
  const { kernelPath, manifest } = prepared;
  const kvType = run.kvType ?? defaultKvType(manifest);
  const { layers, kvHeads, headDim, vocabSize, contextTokens } = manifest.shape;
  return {
    graphPath: graphPathOf(prepared, kvType),
    kernelPath,
    kvType,
    model: { layers, kvHeads, headDim, vocabSize },
    threads: run.threads,
    spinning: true,
    rowCount: run.rowCount,
    contextTokens,
    blockTokens: BLOCK_TOKENS,
    storeBlocks: 1,
  };
}
