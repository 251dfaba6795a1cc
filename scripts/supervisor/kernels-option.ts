/** KernelsOption: `--kernels` of every command that prepares a model. */
import { Option } from 'commander';
import { KERNELS } from '../../batcher/model/matrix-form.ts';

export function kernelsOption(): Option {
  return new Option('--kernels <name>', 'operators of the engine: our own or onnxruntime’s (default: tiled where the host can)').choices(
    KERNELS,
  );
}
