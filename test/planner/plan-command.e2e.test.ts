/** `npx sluice plan` as people run it, on service curves out of a file, and its page in a real browser. */
import { execFile } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, expect, test } from 'vitest';
import { chromiumPath, openChromium } from '../e2e/chromium.ts';
import { CURVES } from './curves.ts';

const PROJECT = join(import.meta.dirname, '..', '..');
const folder = mkdtempSync(join(tmpdir(), 'sluice-plan-'));
afterAll(() => rmSync(folder, { recursive: true }));
const curves = join(folder, 'curves.json');
writeFileSync(curves, JSON.stringify({ ...CURVES, contextTokens: 8_192 }));
const html = join(folder, 'plan.html');
// Its path is in the page's title, and has no place to break at.
const sampleFolder = join(folder, 'a'.repeat(120));
const sample = join(sampleFolder, 'azure-2023-conversation.csv');
mkdirSync(sampleFolder);
copyFileSync(join(PROJECT, 'planner', 'samples', 'azure-2023-conversation.csv'), sample);

function plan(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  const program = [join(PROJECT, 'scripts', 'sluice.mjs'), 'plan', '--host', curves, '--trace', sample, '--html', html, ...args];
  return new Promise(resolve => {
    execFile(process.execPath, program, { cwd: folder }, (error, out, err) =>
      resolve({ code: error === null ? 0 : Number(error.code), out, err }),
    );
  });
}

interface PlanJson {
  figures: { knee: { rate: number; attainment: number }; curve: { rate: number; attainment: number }[]; fleet: { batcherCount: number } };
}

test('a plan has a knee, the curve around it and the number of accelerators, and its page shows them', async () => {
  const { code, out, err } = await plan('--requests', '400', '--rate', '2', '--ttft-slo', '3s', '--tpot-slo', '200ms', '--json');
  expect(err).toContain('plan.html');
  expect(code).toBe(0);
  const { knee, curve, fleet } = (JSON.parse(out) as PlanJson).figures;
  expect(knee.attainment).toBeGreaterThanOrEqual(0.9);
  expect(curve.at(-1)!.rate).toBeCloseTo(knee.rate * 1.5);
  expect(curve.at(-1)!.attainment).toBeLessThan(curve[0]!.attainment);
  expect(fleet.batcherCount).toBeGreaterThanOrEqual(Math.floor(2 / knee.rate));
  expect(fleet.batcherCount).toBeLessThanOrEqual(Math.ceil(2 / knee.rate) + 1);
  expect(readFileSync(html, 'utf8')).not.toMatch(/(src|href)="?https?:/);
  const path = await chromiumPath();
  if (path === undefined) return;
  const browser = await openChromium(path);
  try {
    const page = await browser.newPage();
    const complaints: string[] = [];
    const asked: string[] = [];
    page.on('pageerror', error => complaints.push(error.message));
    page.on('request', request => asked.push(request.url()));
    await page.goto(pathToFileURL(html).href);
    expect(await page.locator('figure canvas').count()).toBe(6);
    expect(await page.locator('tbody tr').count()).toBeGreaterThan(15);
    await page.setViewportSize({ width: 480, height: 700 });
    // Plots follow the page's width a moment later.
    await page.waitForFunction('document.documentElement.scrollWidth <= innerWidth');
    expect([complaints, asked.length]).toEqual([[], 1]);
  } finally {
    await browser.close();
  }
});

test('a gateway that refuses what would wait too long is planned for: above the knee its shares are told, and how to start it', async () => {
  const args = ['--requests', '400', '--ttft-slo', '3s', '--tpot-slo', '200ms'];
  const refusing = await plan(...args, '--max-wait', '1s', '--itl-slo', '120ms');
  expect(refusing.code).toBe(0);
  expect(refusing.out).toContain('the plan holds for batchers with --itl-slo 120 and gateways with SLUICE_MAX_WAIT_MS=1000');
  expect(refusing.out).toMatch(/requests\/s\s+promised\s+refused\s+goodput/);
  expect(readFileSync(html, 'utf8')).toContain('"name":"refused"');
  const asUsual = await plan(...args);
  expect(asUsual.code).toBe(0);
  expect(asUsual.out).not.toMatch(/refused|the plan holds for/);
  expect(readFileSync(html, 'utf8')).not.toContain('"name":"refused"');
});

test.each([
  [['--max-wait', 'never'], '--max-wait must be a time'],
  [['--ttft-slo', 'soon'], '--ttft-slo must be a time'],
  [['--host', '/nowhere.json'], 'no service curves at /nowhere.json'],
  [['--trace', '/nowhere.csv'], 'no trace at /nowhere.csv'],
  [['--scale', '100', '--trace', 'azure-conversation', '--traces', '/nowhere'], 'no file azure-2023-conversation.csv in /nowhere'],
])('%j ends with 2 and one line', async (args, words) => {
  const { code, out, err } = await plan(...args);
  expect([code, out]).toEqual([2, '']);
  expect(err).toContain(words);
});
