/** ModelOptions: options of every command that prepares a model. */
import { Option } from 'commander';
import { KERNELS, QUALITIES } from '../../batcher/model/matrix-form.ts';

export function kernelsOption(): Option {
  return new Option('--kernels <name>', 'operators of the engine: our own or onnxruntime’s (default: tiled where the host can)').choices(
    KERNELS,
  );
}

export function qualityOption(): Option {
  return new Option('--quality <name>', 'fast: all products in 4 bits, at a loss that is measured and told (default: exact)').choices(
    QUALITIES,
  );
}
