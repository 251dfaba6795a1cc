/** TransformersJs: npm's @huggingface/transformers in the ignored folder .peers/, embedding texts in a process of its own. */
import { existsSync } from 'node:fs';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { encoderNameOf } from '../../batcher/model/encoder-folder.ts';
import type { BenchRun } from '../bench.ts';
import { writePaddedBert } from './padded-bert.ts';

const VERSION = '4.3.2';
const PEERS = join(import.meta.dirname, '..', '..', '.peers');

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

/** `folder` is that of a published model. */
export async function installTransformersJs(
  folder: string,
  { progress, children }: Pick<BenchRun, 'progress' | 'children'>,
): Promise<TransformersJs> {
  const home = join(PEERS, `transformers-js-${VERSION}`);
  if (!existsSync(home)) {
    progress(`transformers.js: installing @huggingface/transformers ${VERSION}`);
    const draft = `${home}.${process.pid}`;
    await mkdir(draft, { recursive: true });
    await writeFile(join(draft, 'package.json'), JSON.stringify({ private: true, dependencies: { '@huggingface/transformers': VERSION } }));
    // Its scripts would fetch libraries for CUDA; the processor's are in the package.
    const quiet = ['--silent', '--no-audit', '--no-fund', '--ignore-scripts'];
    await children.run('npm', ['install', ...quiet, '--prefix', draft]);
    await rm(home, { recursive: true, force: true });
    await rename(draft, home);
  }
  const name = encoderNameOf(folder);
  const models = join(home, 'models');
  if (!existsSync(join(models, name))) {
    progress('transformers.js: writing the model in its form');
    const draft = join(models, `${name}.${process.pid}`);
    await writePaddedBert(folder, draft);
    await rename(draft, join(models, name));
  }
  const library = pathToFileURL(join(home, 'node_modules', '@huggingface', 'transformers', 'dist', 'transformers.node.mjs')).href;
  return {
    name: 'transformers.js',
    version: VERSION,
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
