/** TransformersJs: npm's @huggingface/transformers in the ignored folder .peers/, embedding texts in a process of its own. */
import { rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { encoderNameOf } from '../../batcher/model/encoder-folder.ts';
import { npmFolder, type PeerRun, peerFolder } from './package-folder.ts';
import { writePaddedBert } from './padded-bert.ts';

const VERSION = '4.3.2';

export interface EmbeddingPlan {
  /** One list a call, one call after the other. */
  batches: readonly (readonly string[])[];
  threads: number;
}

export interface EmbeddingTimes {
  seconds: number;
  /** Of the first text. */
  firstVector: number[];
}

export interface TransformersJs {
  name: string;
  version: string;
  embed(plan: EmbeddingPlan): Promise<EmbeddingTimes>;
}

/** The library's own folder, and its entry as a URL. */
export async function transformersJsPackage(run: PeerRun): Promise<{ home: string; version: string; library: string }> {
  const manifest = { dependencies: { '@huggingface/transformers': VERSION } };
  const home = await npmFolder(`transformers-js-${VERSION}`, { manifest }, run);
  const entry = join(home, 'node_modules', '@huggingface', 'transformers', 'dist', 'transformers.node.mjs');
  return { home, version: VERSION, library: pathToFileURL(entry).href };
}

/** `folder` is that of a published model. */
export async function installTransformersJs(folder: string, run: PeerRun): Promise<TransformersJs> {
  const { progress, children } = run;
  const { home, version, library } = await transformersJsPackage(run);
  const name = encoderNameOf(folder);
  const written = await peerFolder(`${basename(home)}/models/${name}`, async draft => {
    progress('transformers.js: writing the model in its form');
    await writePaddedBert(folder, draft);
  });
  const models = dirname(written);
  return {
    name: 'transformers.js',
    version,
    async embed(plan) {
      const path = join(home, `plan-${process.pid}.json`);
      await writeFile(path, JSON.stringify({ ...plan, library, models, name }));
      const { stdout } = await children.run(process.execPath, ['--input-type=module', '-e', PROGRAM, path]);
      await rm(path, { force: true });
      return JSON.parse(stdout.trim().split('\n').at(-1)!) as EmbeddingTimes;
    },
  };
}

const PROGRAM = `
import { readFileSync } from 'node:fs';
const { batches, threads, library, models, name } = JSON.parse(readFileSync(process.argv[1], 'utf8'));
const { env, pipeline } = await import(library);
Object.assign(env, { allowRemoteModels: false, localModelPath: models });
const embed = await pipeline('feature-extraction', name, {
  dtype: 'fp32', device: 'cpu', use_external_data_format: true, session_options: { intraOpNumThreads: threads },
});
const options = { pooling: 'mean', normalize: true };
const first = (await embed(batches[0], options)).tolist()[0];
const startedAt = performance.now();
for (const batch of batches) await embed(batch, options);
console.log(JSON.stringify({ seconds: (performance.now() - startedAt) / 1000, firstVector: first }));
`;
