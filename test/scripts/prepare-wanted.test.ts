import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { readQualityLoss } from '../../batcher/quality/quality-loss.ts';
import { prepareWanted } from '../../scripts/supervisor/prepare-wanted.ts';
import { writeGguf } from '../batcher/model/gguf-writer.ts';
import { temporaryFolder } from '../batcher/model/temporary-folder.ts';
import { tinyLlama } from '../batcher/model/tiny-llama.ts';

test('what the fast model costs is measured once, beside the exact one, and told each time', async () => {
  const folder = await temporaryFolder();
  const cacheRoot = join(folder, 'cache');
  const path = await writeGguf(join(folder, 'tiny.gguf'), tinyLlama({ other: 'Q8_0', embedding: 'Q8_0' }));
  const told: string[] = [];
  const prepare = (quality: 'exact' | 'fast') => prepareWanted(path, { cacheRoot, quality }, line => told.push(line));

  const exact = await prepare('exact');
  expect(told).toEqual([]);
  const fast = await prepare('fast');
  const loss = await readQualityLoss(fast.directory);
  expect(loss!.exactPerplexity).toBeGreaterThan(1);
  expect(loss!.fastPerplexity).not.toBe(loss!.exactPerplexity);
  expect(loss!.tokenCount).toBe(fast.manifest.shape.contextTokens);

  await rm(exact.directory, { recursive: true });
  await prepare('fast');
  expect(told).toHaveLength(2);
  expect(told[0]).toMatch(/^quality fast: perplexity [\d.]+ instead of [\d.]+ \([\d.]+ % (more|less)\) on a text of \d+ tokens$/);
  expect(told[1]).toBe(told[0]);
  expect(await readdir(join(cacheRoot, 'models'))).toHaveLength(1);
});
