/** A short fuzz run of a fixed seed: every surface, the live ones on the real product. `npm run bench -- fuzz` is the long one. */
import { expect, it } from 'vitest';
import { Children } from '../../bench/children.ts';
import { fuzzBench } from '../../bench/fuzz.ts';
import { barText, failedBars } from '../../bench/report.ts';
import { readSettings } from '../../bench/settings.ts';

it('refuses hostile inputs in words or finds them harmless, without a crash, a hang or growth', async () => {
  const children = new Children();
  const told: string[] = [];
  try {
    const settings = readSettings(fuzzBench.settings, {
      ...{ seconds: '35', seed: '7' },
      ...(process.env.SLUICE_TEST_GGUF && { model: process.env.SLUICE_TEST_GGUF }),
    });
    const findings = await fuzzBench.run({ settings, progress: line => told.push(line), children });
    expect(failedBars(findings).map(barText), told.join('\n')).toEqual([]);
    const surfaces = findings.figures.surfaces as { what: string; inputCount: number }[];
    expect(surfaces).toHaveLength(7);
    for (const { what, inputCount } of surfaces) expect(inputCount, what).toBeGreaterThan(0);
  } finally {
    await children.endAll();
  }
});
