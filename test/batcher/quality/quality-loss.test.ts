import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { keepQualityLoss, qualityText, readQualityLoss } from '../../../batcher/quality/quality-loss.ts';
import { temporaryFolder } from '../model/temporary-folder.ts';

const LOSS = { exactPerplexity: 21.9528, fastPerplexity: 22.4102, tokenCount: 1024 };

describe('the loss of a fast model', () => {
  test('is kept in its folder', async () => {
    const folder = await temporaryFolder();
    expect(await readQualityLoss(folder)).toBeUndefined();
    await keepQualityLoss(folder, LOSS);
    expect(await readQualityLoss(folder)).toEqual(LOSS);
  });

  test.each(['', '{', 'null', '{}', '{"exactPerplexity":1,"fastPerplexity":null,"tokenCount":3}'])(
    'kept as %j counts as not measured',
    async text => {
      const folder = await temporaryFolder();
      await writeFile(join(folder, 'quality.json'), text);
      expect(await readQualityLoss(folder)).toBeUndefined();
    },
  );

  test('is told either way', () => {
    expect(qualityText(LOSS)).toBe('perplexity 22.41 instead of 21.95 (2.1 % more) on a text of 1024 tokens');
    expect(qualityText({ exactPerplexity: 10, fastPerplexity: 9.9, tokenCount: 64 })).toBe(
      'perplexity 9.90 instead of 10.00 (1.0 % less) on a text of 64 tokens',
    );
  });
});
