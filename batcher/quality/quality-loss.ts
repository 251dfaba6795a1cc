/**
 * QualityLoss: what `--quality fast` costs, as it was measured on this model and host: perplexity of a fixed text with the weights as the file has
 * them and with those that run. Kept in the folder of the fast model.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { replaceFile } from '../model/atomic-file.ts';

const FILE = 'quality.json';

export interface QualityLoss {
  exactPerplexity: number;
  fastPerplexity: number;
  /** Of the text. */
  tokenCount: number;
}

/** Undefined where it was not measured, or what is kept cannot be read. */
export async function readQualityLoss(directory: string): Promise<QualityLoss | undefined> {
  try {
    const loss = JSON.parse(await readFile(join(directory, FILE), 'utf8')) as QualityLoss;
    return [loss.exactPerplexity, loss.fastPerplexity, loss.tokenCount].every(Number.isFinite) ? loss : undefined;
  } catch {
    return undefined;
  }
}

export async function keepQualityLoss(directory: string, loss: QualityLoss): Promise<void> {
  await replaceFile(join(directory, FILE), `${JSON.stringify(loss)}\n`);
}

/** For people, in one line. */
export function qualityText({ exactPerplexity, fastPerplexity, tokenCount }: QualityLoss): string {
  const share = 100 * (fastPerplexity / exactPerplexity - 1);
  const difference = `${Math.abs(share).toFixed(1)} % ${share < 0 ? 'less' : 'more'}`;
  return `perplexity ${fastPerplexity.toFixed(2)} instead of ${exactPerplexity.toFixed(2)} (${difference}) on a text of ${tokenCount} tokens`;
}
