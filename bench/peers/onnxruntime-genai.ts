/** OnnxruntimeGenai: PyPI's onnxruntime-genai in the ignored folder .peers/, on an export of the same file in its builder's form. */
import { join } from 'node:path';
import type { EnginePeer, EnginePeerTask } from '../engine-peer.ts';
import { type PeerRun, pipFolder } from './package-folder.ts';
import { paddedLlamaFolder } from './padded-llama-folder.ts';
import { lastRate } from './rate-line.ts';

const VERSION = '0.18.0';

export async function onnxruntimeGenai({ model, threads }: EnginePeerTask, run: PeerRun): Promise<EnginePeer> {
  const home = await pipFolder(`onnxruntime-genai-${VERSION}`, `onnxruntime-genai==${VERSION}`, run);
  const { folder } = await paddedLlamaFolder(model, run);
  const { vocabSize } = model.manifest.shape;
  const program = join(import.meta.dirname, 'onnxruntime-genai-rate.py');
  return {
    version: `${VERSION}, symmetric 4-bit export`,
    async measure(work) {
      const plan = JSON.stringify({ folder, threads, vocabSize, work });
      const env = { ...process.env, PYTHONPATH: home };
      return lastRate((await run.children.run('python3', [program, plan], { env })).stdout);
    },
  };
}
