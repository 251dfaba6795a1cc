/**
 * The playground on the whole product, over a line that breaks. With SLUICE_SCREENSHOT set to a path it also leaves a picture there, which
 * is how docs/playground.png is made.
 */
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type BadLine, startBadLine } from './bad-line.ts';
import { chromiumPath, openChromium } from './chromium.ts';
import { Product, textOf, user } from './product.ts';

const chromium = await chromiumPath();
const QUESTION = 'Write a long story about a lighthouse keeper and his dog.';
/** Seconds long on a fast machine, so that there is a middle of it. */
const LENGTH = 300;
const PATIENCE = { timeout: 60_000 };

describe.skipIf(chromium === undefined)('playground', () => {
  let product: Product;
  let line: BadLine;
  let browser: Browser;
  let page: Page;
  /** The same answer, got whole. */
  let whole: string;

  beforeAll(async () => {
    product = await Product.start();
    whole = textOf(await product.chat({ messages: [user(QUESTION)], max_tokens: LENGTH, seed: 1 }));
    line = await startBadLine(Number(new URL(product.baseUrl).port));
    browser = await openChromium(chromium!);
    page = await browser.newPage({ viewport: { width: 1000, height: 620 }, colorScheme: 'dark' });
    await page.goto(`${line.url}/#key=${product.key}`);
    await page.getByText('Parameters').click();
    await page.getByLabel('Temperature').fill('0');
    await page.getByLabel('Seed').fill('1');
    await page.getByLabel('Max tokens').fill(String(LENGTH));
  });
  afterAll(async () => {
    await browser?.close();
    await line?.close();
    await product?.stop();
  });

  const answerText = () => page.locator('.answer .text').first();
  const halfway = () =>
    answerText()
      .getByText(whole.slice(whole.length / 4, whole.length / 3).trim())
      .waitFor();

  async function ask(): Promise<void> {
    await page.getByRole('button', { name: 'New conversation' }).click();
    await page.getByLabel('Question').fill(QUESTION);
    await page.getByRole('button', { name: 'Send' }).click();
  }

  it('streams an answer, and says how fast', async () => {
    await ask();
    await page.getByText(/[\d.]+ tokens\/s, this answer · /).waitFor();
    await page.getByText(/This page: [\d.]+ tokens\/s, one open answer together/).waitFor();
    await page.locator('.answer[data-state="finished"]').waitFor(PATIENCE);
    expect(await answerText().textContent()).toBe(whole);
    expect(await page.locator('.answer .figures').textContent()).toContain(`${LENGTH} tokens · `);
  });

  it('loses its connection in the middle, and the text goes on without a gap or a repetition', async () => {
    await ask();
    await halfway();
    line.cut();
    await page.getByRole('status').getByText('Connection lost').waitFor();
    await page.locator('.answer[data-state="finished"]').waitFor(PATIENCE);
    expect(await answerText().textContent()).toBe(whole);
  });

  it("the browser's own EventSource does so too, by the token of the stream", async () => {
    const response = await product.post(
      '/chat/completions',
      { model: 'default', stream: true, temperature: 0, seed: 1, max_tokens: LENGTH, messages: [user(QUESTION)] },
      { signal: AbortSignal.timeout(60_000) },
    );
    const id = response.headers.get('x-sluice-stream-id')!;
    const token = response.headers.get('x-sluice-stream-token')!;
    await page.evaluate(
      `source = new EventSource('/v1/streams/${id}?token=${token}');
       seen = ''; openCount = 0; isDone = false;
       source.onopen = () => openCount++;
       source.onmessage = ({ data }) => {
         if (data === '[DONE]') { isDone = true; source.close(); }
         else seen += JSON.parse(data).choices[0].delta.content ?? '';
       };`,
    );
    await expect.poll(() => page.evaluate('seen.length'), PATIENCE).toBeGreaterThan(whole.length / 4);
    line.cut();
    await expect.poll(() => page.evaluate('isDone'), PATIENCE).toBe(true);
    expect(await page.evaluate('seen')).toBe(whole);
    expect(await page.evaluate('openCount')).toBe(2);
    await response.body?.cancel();
  });

  it.runIf(process.env.SLUICE_SCREENSHOT)('has its picture taken', async () => {
    for (const [label, text] of [
      ['Answers at once', '2'],
      ['Temperature', ''],
      ['Seed', ''],
    ] as const) {
      await page.getByLabel(label).fill(text);
    }
    await page.getByText('Parameters').click();
    await ask();
    await page.getByText(/This page: [\d.]+ tokens\/s, 2 open answers together/).waitFor();
    await expect.poll(async () => (await answerText().textContent())?.length, PATIENCE).toBeGreaterThan(whole.length / 2);
    await page.screenshot({ path: process.env.SLUICE_SCREENSHOT! });
    await page.getByRole('button', { name: 'Stop all' }).click();
  });
});
