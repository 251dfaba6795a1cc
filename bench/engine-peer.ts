/** EnginePeer: the engines that ours is measured beside: each is installed by the bench, and says why where it cannot run. */
import type { EngineWork } from './engine-rate.ts';
import type { BenchModel } from './model.ts';
import { installLlamaCpp, measureLlamaCpp } from './peers/llama-cpp.ts';
import { nodeLlamaCpp } from './peers/node-llama-cpp.ts';
import { onnxruntimeGenai } from './peers/onnxruntime-genai.ts';
import type { PeerRun } from './peers/package-folder.ts';
import { transformersJsText } from './peers/transformers-js-text.ts';
import { vllm } from './peers/vllm.ts';
import { UsageError } from './settings.ts';

export interface EnginePeerTask {
  model: BenchModel;
  threads: number;
}

export interface EnginePeer {
  version: string;
  /** Tokens/s, aggregate; throws where the peer cannot do that. */
  measure(work: EngineWork): Promise<number>;
}

type Install = (task: EnginePeerTask, run: PeerRun) => Promise<EnginePeer>;

const INSTALLS = {
  'llama.cpp': llamaCpp,
  'onnxruntime-genai': onnxruntimeGenai,
  'node-llama-cpp': nodeLlamaCpp,
  'transformers.js': transformersJsText,
  vllm,
} as const satisfies Record<string, Install>;

export const ENGINE_PEERS = Object.keys(INSTALLS);

/** The peers of a list such as `llama.cpp,vllm`. Throws a UsageError that names an unknown one. */
export function namedEnginePeers(list: string): { name: string; install: Install }[] {
  const names = list === 'all' ? ENGINE_PEERS : list.split(',');
  return names.map(name => {
    if (!Object.hasOwn(INSTALLS, name)) throw new UsageError(`--peers must be of ${ENGINE_PEERS.join(', ')}, or all, not '${name}'`);
    return { name, install: INSTALLS[name as keyof typeof INSTALLS] };
  });
}

async function llamaCpp({ model, threads }: EnginePeerTask, run: PeerRun): Promise<EnginePeer> {
  const peer = await installLlamaCpp(run, 'llama-batched-bench');
  return {
    version: `${peer.version}, ${peer.buildFlags.join(' ')}`,
    measure: work => measureLlamaCpp(peer, run, { modelPath: model.ggufPath, threads, work }),
  };
}
