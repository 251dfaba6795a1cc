/** NodeLlamaCpp: npm's node-llama-cpp in the ignored folder .peers/, with the binary that it publishes, on the same GGUF file. */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { EnginePeer, EnginePeerTask } from '../engine-peer.ts';
import type { NodeLlamaCppPlan } from './node-llama-cpp-rate.ts';
import { npmFolder, type PeerRun } from './package-folder.ts';
import { lastRate } from './rate-line.ts';

const VERSION = '3.22.1';

export async function nodeLlamaCpp({ model, threads }: EnginePeerTask, run: PeerRun): Promise<EnginePeer> {
  const { platform, arch } = process;
  const binary = `@node-llama-cpp/${platform === 'darwin' ? `mac-${arch}${arch === 'arm64' ? '-metal' : ''}` : `${platform}-${arch}`}`;
  // Of its optional packages the one for this processor is taken by itself: the others are gigabytes for graphics cards.
  const manifest = { dependencies: { 'node-llama-cpp': VERSION, [binary]: VERSION } };
  const home = await npmFolder(`node-llama-cpp-${VERSION}`, { manifest, flags: ['--omit=optional'] }, run);
  const program = join(import.meta.dirname, 'node-llama-cpp-rate.ts');
  const library = pathToFileURL(join(home, 'node_modules', 'node-llama-cpp', 'dist', 'index.js')).href;
  return {
    version: `${VERSION}, its own binary`,
    async measure(work) {
      const plan: NodeLlamaCppPlan = { library, modelPath: model.ggufPath, threads, vocabSize: model.manifest.shape.vocabSize, work };
      return lastRate((await run.children.run(process.execPath, [program, JSON.stringify(plan)])).stdout);
    },
  };
}
