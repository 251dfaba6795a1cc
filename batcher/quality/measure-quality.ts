/**
 * MeasureQuality: a program of its own, so that the memory of its engines is gone with it: perplexity of the beginning of a text by each of several
 * prepared models, as a JSON list.
 *
 *   node batcher/quality/measure-quality.ts <text file> <tokens> <prepared folder>…
 */
import { readFile } from 'node:fs/promises';
import os from 'node:os';
import { OrtEngine } from '../engine/ort-engine.ts';
import { engineOptions } from '../model/engine-options.ts';
import { openPrepared } from '../model/prepare.ts';
import { loadTokenizer } from '../model/tokenizer.ts';
import { perplexity } from './perplexity.ts';

const CHUNK_TOKENS = 128;

export interface MeasuredPerplexity {
  perplexity: number;
  tokenCount: number;
}

/** Of as many tokens as the text, the bound and the model's context allow. */
async function measure(directory: string, text: string, mostTokens: number): Promise<MeasuredPerplexity> {
  const model = await openPrepared(directory);
  const tokenCount = Math.min(mostTokens, model.manifest.shape.contextTokens);
  const tokenIds = (await loadTokenizer(directory)).encodePrompt(text).slice(0, tokenCount);
  const engine = new OrtEngine(engineOptions(model, { threads: os.availableParallelism(), rowCount: 1 }));
  try {
    return { perplexity: await perplexity(engine, { tokenIds, chunkTokens: CHUNK_TOKENS }), tokenCount: tokenIds.length };
  } finally {
    engine.close();
  }
}

const [textPath, mostTokens, ...directories] = process.argv.slice(2);
if (textPath === undefined || directories.length === 0) throw new Error('measure-quality: <text file> <tokens> <prepared folder>…');
const text = await readFile(textPath, 'utf8');
const measured: MeasuredPerplexity[] = [];
for (const directory of directories) measured.push(await measure(directory, text, Number(mostTokens)));
process.stdout.write(`${JSON.stringify(measured)}\n`);
