/** TransformersJsText: npm's @huggingface/transformers as a peer of our engine, on an export of the same file. */
import { join } from 'node:path';
import type { EnginePeer, EnginePeerTask } from '../engine-peer.ts';
import type { PeerRun } from './package-folder.ts';
import { paddedLlamaFolder } from './padded-llama-folder.ts';
import { lastRate } from './rate-line.ts';
import { transformersJsPackage } from './transformers-js.ts';
import type { TransformersJsPlan } from './transformers-js-rate.ts';

export async function transformersJsText({ model, threads }: EnginePeerTask, run: PeerRun): Promise<EnginePeer> {
  const { version, library } = await transformersJsPackage(run);
  const { root, name } = await paddedLlamaFolder(model, run);
  const program = join(import.meta.dirname, 'transformers-js-rate.ts');
  return {
    version: `${version}, symmetric 4-bit export`,
    async measure(work) {
      const plan: TransformersJsPlan = { library, root, name, threads, vocabSize: model.manifest.shape.vocabSize, work };
      return lastRate((await run.children.run(process.execPath, [program, JSON.stringify(plan)])).stdout);
    },
  };
}
