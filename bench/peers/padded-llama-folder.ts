/** PaddedLlamaFolder: the export of a model's file for other libraries of onnxruntime, made once in the ignored folder .peers/. */
import { dirname } from 'node:path';
import type { BenchModel } from '../model.ts';
import { type PeerRun, peerFolder } from './package-folder.ts';
import { writePaddedLlama } from './padded-llama.ts';

/** Of the form that is written: a change of it makes new folders. */
const FORM = 1;

export async function paddedLlamaFolder(model: BenchModel, { progress }: PeerRun): Promise<{ folder: string; root: string; name: string }> {
  const name = `${model.name}-${model.manifest.source.sha256.slice(0, 12)}-${FORM}`;
  const folder = await peerFolder(`exports/${name}`, async draft => {
    progress('writing the model for onnxruntime-genai and transformers.js, once');
    await writePaddedLlama(model.ggufPath, draft);
  });
  return { folder, root: dirname(folder), name };
}
