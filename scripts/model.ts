/**
 * Model: prepares models ahead of time and says what is in them.
 * `npm run model -- prepare path.gguf [--weights q4|q8|f32] [--kernels tiled|stock] [--quality exact|fast] [--verify]`, `npm run model -- info path.gguf`; `default` instead of a path
 * is the default model; `prepare` takes embedding models too, by folder or name. What cannot be used ends in one line on standard error and
 * exit code 2.
 */
import { stat } from 'node:fs/promises';
import { Argument, Command, Option } from 'commander';
import { fetchDefaultModel } from '../batcher/model/download.ts';
import { fetchEncoder, KNOWN_ENCODERS } from '../batcher/model/download-encoder.ts';
import { isEncoderFolder } from '../batcher/model/encoder-folder.ts';
import { openGguf } from '../batcher/model/gguf-file.ts';
import { readLlamaShape } from '../batcher/model/llama-shape.ts';
import { type Kernels, type Quality, WEIGHTS_CHOICES, type WeightsChoice } from '../batcher/model/matrix-form.ts';
import { ModelError } from '../batcher/model/model-error.ts';
import { modelNameOf } from '../batcher/model/model-name.ts';
import { prepareEncoder } from '../batcher/model/prepare-encoder.ts';
import { readVocabulary } from '../batcher/model/vocabulary.ts';
import { ProgressLine } from './progress-line.ts';
import { kernelsOption, qualityOption } from './supervisor/model-options.ts';
import { prepareWanted } from './supervisor/prepare-wanted.ts';

interface PrepareFlags {
  weights?: WeightsChoice;
  kernels?: Kernels;
  quality?: Quality;
  verify?: boolean;
  cache?: string;
}

const gguf = new Argument('<gguf>', 'path of a GGUF file, or "default" for the default model');
const cache = new Option(
  '--cache <folder>',
  'folder for downloads and prepared models (default: $XDG_CACHE_HOME/sluice or ~/.cache/sluice)',
);

const program = new Command('model').description('Prepare models for the batcher, and look into them.');
program
  .command('prepare')
  .description('make the graph, weights and vocabulary of a model; what is there and intact is kept')
  .addArgument(
    new Argument('<model>', `path of a GGUF file, "default", folder of an embedding model, or ${[...KNOWN_ENCODERS.keys()].join(' or ')}`),
  )
  .addOption(
    new Option('--weights <form>', 'form of the weights (default: quantized ones as they are, floats in 8 bits)').choices(WEIGHTS_CHOICES),
  )
  .addOption(kernelsOption())
  .addOption(qualityOption())
  .option('--verify', 'read every byte of what is there instead of trusting sizes and times')
  .addOption(cache)
  .action(prepare);
program.command('info').description('say what a GGUF file holds, without preparing it').addArgument(gguf).addOption(cache).action(info);

try {
  await program.parseAsync();
} catch (thrown) {
  if (!(thrown instanceof ModelError)) throw thrown;
  process.stderr.write(`${thrown.message}\n`);
  process.exitCode = 2;
}

async function prepare(source: string, { weights, kernels, quality, verify, cache: cacheRoot }: PrepareFlags): Promise<void> {
  using line = new ProgressLine(process.stderr);
  const onProgress = (done: number, total: number, label: string): void => line.show(done, total, label);
  if (KNOWN_ENCODERS.has(source) || (await isEncoderFolder(source))) return await prepareEmbeddings(source, { verify, cacheRoot, line });
  const path = await resolveSource(source, cacheRoot, onProgress);
  const startedAt = performance.now();
  const onRebuild = (reason: string) => line.say(reason);
  const options = { weights, kernels, quality, verify, cacheRoot, onProgress, onRebuild };
  const prepared = await prepareWanted(path, options, told => line.say(told));
  line.clear();
  const { manifest, directory } = prepared;
  const bytes = manifest.files.reduce((sum, file) => sum + file.byteLength, 0);
  print([
    ['model', prepared.name],
    ['folder', directory],
    ['size', megabytes(bytes)],
    ['weights', describeForms(manifest.forms)],
    ['kernels', manifest.kernels],
    ['KV cache', manifest.kvTypes.join(' or ')],
    ['context', `${manifest.shape.contextTokens} tokens`],
    ['time', `${((performance.now() - startedAt) / 1000).toFixed(1)} s`],
  ]);
}

async function prepareEmbeddings(
  source: string,
  { verify, cacheRoot, line }: { verify: boolean | undefined; cacheRoot: string | undefined; line: ProgressLine },
): Promise<void> {
  const onProgress: OnProgress = (done, total, label) => line.show(done, total, label);
  const published = KNOWN_ENCODERS.get(source);
  const folder = published === undefined ? source : await fetchEncoder(published, { cacheRoot, onProgress });
  const startedAt = performance.now();
  const { name, directory, manifest } = await prepareEncoder(folder, {
    verify,
    cacheRoot,
    onProgress,
    onRebuild: reason => line.say(reason),
  });
  line.clear();
  const { contextTokens, width, pooling } = manifest.shape;
  print([
    ['model', name],
    ['folder', directory],
    ['size', megabytes(manifest.files.reduce((sum, file) => sum + file.byteLength, 0))],
    ['vectors', `${width} numbers, ${pooling === 'mean' ? 'the mean of all tokens' : 'the first token'}`],
    ['context', `${contextTokens} tokens`],
    ['time', `${((performance.now() - startedAt) / 1000).toFixed(1)} s`],
  ]);
}

async function info(source: string, { cache: cacheRoot }: PrepareFlags): Promise<void> {
  using line = new ProgressLine(process.stderr);
  const path = await resolveSource(source, cacheRoot, (done, total, label) => line.show(done, total, label));
  line.clear();
  await using file = await openGguf(path);
  const shape = readLlamaShape(file);
  const vocabulary = readVocabulary(file, shape.vocabSize);
  const types = Map.groupBy(file.tensors.values(), tensor => tensor.type.name);
  const spelled = (ids: readonly number[]): string => ids.map(id => `${id} ${vocabulary.tokens[id]}`).join(', ');
  print([
    ['model', modelNameOf(path)],
    ['size', megabytes((await stat(path)).size)],
    ['layers', `${shape.layerCount}, ${shape.width} wide, feed-forward ${shape.feedForwardWidth}`],
    ['heads', `${shape.headCount} of ${shape.headDim}, ${shape.kvHeadCount} for keys and values`],
    ['context', `${shape.contextTokens} tokens`],
    ['vocabulary', `${vocabulary.tokens.length} tokens, ${vocabulary.kind}${shape.isTied ? ', head tied to the embedding' : ''}`],
    ['tensors', [...types].map(([type, tensors]) => `${tensors.length} ${type}`).join(', ')],
    ['BOS', vocabulary.bosTokenId === undefined ? 'none' : `${spelled([vocabulary.bosTokenId])}${vocabulary.addBos ? '' : ' (not added)'}`],
    ['end', spelled(vocabulary.endTokenIds)],
    ['template', Object.keys(vocabulary.chatTemplates).join(', ') || 'none in the file'],
  ]);
}

type OnProgress = (done: number, total: number, label: string) => void;

async function resolveSource(source: string, cacheRoot: string | undefined, onProgress: OnProgress): Promise<string> {
  return source === 'default' ? fetchDefaultModel({ cacheRoot, onProgress }) : source;
}

function describeForms(forms: Readonly<Record<string, number>>): string {
  return Object.entries(forms)
    .map(([form, count]) => `${count} matrices in ${form}`)
    .join(', ');
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

function print(rows: readonly (readonly [string, string])[]): void {
  for (const [name, value] of rows) process.stdout.write(`${name.padEnd(11)}${value}\n`);
}
