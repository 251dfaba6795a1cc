/** A short chaos run: every fault once, under load, on the real product. `npm run chaos` is the long one. */
import { expect, it } from 'vitest';
import { chaosBench } from '../../bench/chaos.ts';
import { Children } from '../../bench/children.ts';
import { barText, failedBars } from '../../bench/report.ts';
import { readSettings } from '../../bench/settings.ts';

it('loses, alters and repeats nothing, and leaves nothing behind, whatever breaks', async () => {
  const children = new Children();
  const told: string[] = [];
  try {
    const settings = readSettings(chaosBench.settings, {
      ...{ minutes: '0', requests: '7', clients: '4', seed: '6' },
      ...(process.env.SLUICE_TEST_GGUF && { model: process.env.SLUICE_TEST_GGUF }),
    });
    const findings = await chaosBench.run({ settings, progress: line => told.push(line), children });
    expect(failedBars(findings).map(barText), told.join('\n')).toEqual([]);
    expect(findings.figures.callCount).toBeGreaterThan(0);
    expect(Object.keys(findings.figures.faultCounts as object).length).toBeGreaterThan(10);
  } finally {
    await children.endAll();
  }
});
