/**
 * PrepareWanted: the model in the quality that was asked for. What the fast one costs is measured once, beside the exact one, and told at every start.
 */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { PreparedModel, PrepareOptions } from '../../batcher/model/prepare.ts';
import type { MeasuredPerplexity } from '../../batcher/quality/measure-quality.ts';

const PROGRAM = join(import.meta.dirname, '..', '..', 'batcher', 'quality', 'measure-quality.ts');
const TEXT = join(import.meta.dirname, '..', '..', 'bench', 'text', 'alice-chapter-1.txt');
const TEXT_TOKENS = 1024;

/** `onQuality` is told what the fast model costs. Throws a ModelError of one line. */
export async function prepareWanted(
  ggufPath: string,
  options: PrepareOptions,
  onQuality: (line: string) => void,
  signal?: AbortSignal,
): Promise<PreparedModel> {
  const { prepareModel } = await import('../../batcher/model/prepare.ts');
  const wanted = await prepareModel(ggufPath, options);
  if (options.quality !== 'fast') return wanted;
  const { keepQualityLoss, qualityText, readQualityLoss } = await import('../../batcher/quality/quality-loss.ts');
  let loss = await readQualityLoss(wanted.directory);
  if (loss === undefined) {
    const exact = await prepareModel(ggufPath, { ...options, quality: 'exact' });
    options.onProgress?.(0, 1, 'measuring its quality');
    const { stdout } = await promisify(execFile)(
      process.execPath,
      [PROGRAM, TEXT, String(TEXT_TOKENS), exact.directory, wanted.directory],
      { encoding: 'utf8', ...(signal && { signal }) },
    );
    const [ofExact, ofFast] = JSON.parse(stdout) as [MeasuredPerplexity, MeasuredPerplexity];
    loss = { exactPerplexity: ofExact.perplexity, fastPerplexity: ofFast.perplexity, tokenCount: ofFast.tokenCount };
    await keepQualityLoss(wanted.directory, loss);
  }
  onQuality(`quality fast: ${qualityText(loss)}`);
  return wanted;
}
