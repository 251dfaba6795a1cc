/**
 * EncoderRate: a program of its own, as the peer is one: tokenizes and embeds texts on our engine alone, without gateway and Redis, and prints the
 * seconds that they took.
 *
 *   node bench/encoder-rate.ts <file with a plan as JSON>
 */
import { readFile } from 'node:fs/promises';
import { OrtEncoder } from '../batcher/encoder/ort-encoder.ts';
import { loadEncoderVocabulary, openEncoder } from '../batcher/model/prepare-encoder.ts';
import { WordPiece } from '../batcher/model/word-piece.ts';

export interface EncoderPlan {
  /** A prepared model. */
  directory: string;
  threads: number;
  /** One list a run, one run after the other. */
  batches: readonly (readonly string[])[];
}

export async function measureEncoder({ directory, threads, batches }: EncoderPlan): Promise<number> {
  const { manifest, graphPath } = await openEncoder(directory);
  const { shape } = manifest;
  const tokenizer = new WordPiece(await loadEncoderVocabulary(directory));
  // As the batcher has it.
  const engine = new OrtEncoder({ graphPath, shape, pooling: shape.pooling, threads, spinning: 'brief' });
  const embed = (batch: readonly string[]) => engine.embed(batch.map(text => tokenizer.encode(text, { most: shape.contextTokens })));
  try {
    await embed(batches[0]!);
    const startedAt = performance.now();
    for (const batch of batches) await embed(batch);
    return (performance.now() - startedAt) / 1000;
  } finally {
    engine.close();
  }
}

if (import.meta.main) {
  const plan = JSON.parse(await readFile(process.argv[2] ?? '', 'utf8')) as EncoderPlan;
  process.stdout.write(`${await measureEncoder(plan)}\n`);
}
