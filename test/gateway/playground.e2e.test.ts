/** The playground in a real browser, on a gateway whose answers and whose waiting the test decides. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { chromiumPath, openChromium } from '../e2e/chromium.ts';
import { eventually, type Stack, startStack } from './stack.ts';
import type { Script } from './token-source.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const chromium = await chromiumPath();

describe.skipIf(chromium === undefined)('playground', () => {
  let stack: Stack;
  let browser: Browser;
  let page: Page;
  /** What the browser found wrong: uncaught errors, breaches of the policy. */
  let complaints: string[];

  beforeAll(async () => {
    stack = await startStack({ bindings: { SLUICE_HEARTBEAT_MS: '100' } });
    browser = await openChromium(chromium!);
  });
  afterAll(async () => {
    await browser?.close();
    await stack?.stop();
  });
  beforeEach(async () => {
    stack.source.resume();
    page = await browser.newPage({ viewport: { width: 1100, height: 800 } });
    complaints = [];
    page.on('pageerror', error => complaints.push(error.message));
    page.on('console', message => {
      // A status of 4xx is one, too, and part of what is tested.
      if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) complaints.push(message.text());
    });
    await page.goto(stack.gateway.url);
  });
  afterEach(async () => {
    await page.close();
    expect(complaints).toEqual([]);
  });

  const answer = () => page.getByRole('article', { name: 'Answer' });
  const note = () => answer().getByRole('status');

  async function enterKey(key = stack.gateway.key): Promise<void> {
    await page.getByLabel('Key', { exact: true }).fill(key);
    await page.getByLabel('Key', { exact: true }).blur();
  }

  async function ask(script: Script | string): Promise<void> {
    await page.getByLabel('Question').fill(typeof script === 'string' ? script : JSON.stringify(script));
    await page.getByRole('button', { name: 'Send' }).click();
  }

  const ended = () => page.locator('.answer[data-state="finished"]').first().waitFor();

  it('has what the model says to itself apart, kept over a reload', async () => {
    await enterKey();
    await ask({ reasoning: ['Hm, ', '<b>so</b>.'], pieces: ['Paris', '.'], stepMs: 20 });
    await ended();
    const reasoning = answer().locator('details.reasoning');
    for (let load = 0; load < 2; load++) {
      expect(await answer().locator('.text').textContent()).toBe('Paris.');
      expect(await reasoning.locator('div').textContent()).toBe('Hm, <b>so</b>.');
      expect(await reasoning.locator('div').isVisible()).toBe(false);
      await reasoning.locator('summary').click();
      expect(await reasoning.locator('div').isVisible()).toBe(true);
      await page.reload();
      await ended();
    }
    await enterKey();
    await ask({ pieces: ['Rome'] });
    await page.locator('.answer .text', { hasText: 'Rome' }).waitFor();
    expect(await page.locator('details.reasoning').last().isVisible()).toBe(false);
  });

  it('streams an answer and puts text in as text', async () => {
    await enterKey();
    const text = '<img src=x onerror="document.title=1"> & <b>so on</b>';
    await ask({ pieces: [...text].map(char => char) });
    await ended();
    expect(await answer().locator('.text').textContent()).toBe(text);
    expect(await page.locator('#log img, #log b').count()).toBe(0);
    expect(await answer().locator('.figures').textContent()).toMatch(
      new RegExp(
        `^${text.length} tokens · first text after .+ · 4.0 tokens/s, this answer in the batcher · prompt \\d+ tokens · ended by itself$`,
      ),
    );
  });

  it('sends what the form says, and no more', async () => {
    await enterKey();
    await page.getByText('Parameters').click();
    await page.getByLabel('System prompt').fill('be brief');
    await page.getByLabel('Temperature').fill('0.5');
    await page.getByLabel('Seed').fill('7');
    await page.getByLabel('Max tokens').fill('12');
    await page.getByLabel('Stop at').fill('\n\nEND\n stop');
    const takenBefore = stack.source.taken.length;
    await ask('first question');
    await ended();
    await ask('second');
    await eventually('the second job', () => stack.source.taken.length === takenBefore + 2);
    const job = stack.source.jobs.get(stack.source.taken.at(-1)!)!;
    expect(job.prompt).toEqual({
      kind: 'chat',
      messages: [
        { role: 'system', content: 'be brief' },
        { role: 'user', content: 'first question' },
        { role: 'assistant', content: 'first question' },
        { role: 'user', content: 'second' },
      ],
    });
    expect(job.sampling).toEqual({ temperature: 0.5, seed: 7 });
    expect(job.stopping).toMatchObject({ maxTokens: 12, stop: ['END', ' stop'] });
  });

  it('shows the place in the queue, then the rate of each answer and of all together', async () => {
    await enterKey();
    await stack.source.hold();
    const others = await Promise.all(
      [1, 2].map(() => stack.post({ model: 'default', stream: true, messages: [{ role: 'user', content: 'x' }] })),
    );
    await page.getByText('Parameters').click();
    await page.getByLabel('Answers at once').fill('2');
    await ask({ pieces: ['a ', 'b '], repeat: 1_000, stepMs: 20 });
    await note().first().getByText('Waiting in the queue · position 3').waitFor();
    stack.source.resume();
    await answer()
      .first()
      .getByText(/[\d.]+ tokens\/s, this answer/)
      .waitFor();
    await page.getByText(/This page: [\d.]+ tokens\/s, 2 open answers together/).waitFor();
    await page.getByText(/All clients: \d+ of 64 rows in use, .*KV cache \d+ % full/).waitFor();
    const cancelledBefore = stack.source.cancelled.length;
    await page.getByRole('button', { name: 'Stop all' }).click();
    await eventually('both to be cancelled', () => stack.source.cancelled.length === cancelledBefore + 2);
    expect(await note().allTextContents()).toEqual(['Stopped', 'Stopped']);
    await Promise.all(others.map(other => other.body?.cancel()));
  });

  it('a page that is loaded again goes on where it was, without the key', async () => {
    await enterKey();
    const pieces = Array.from({ length: 200 }, (_, index) => `${index} `);
    await ask({ pieces, stepMs: 10 });
    await answer().locator('.text').getByText('20 21 22').waitFor();
    await page.reload();
    expect(await page.getByLabel('Key', { exact: true }).inputValue()).toBe('');
    expect(await answer().locator('.text').textContent()).toMatch(/^0 1 2 .*21 22 /);
    await page.getByRole('button', { name: 'Resume' }).click();
    await ended();
    expect(await answer().locator('.text').textContent()).toBe(pieces.join(''));
  });

  it('a gateway that dies and comes back costs a pause and no text', async () => {
    await enterKey();
    const pieces = Array.from({ length: 300 }, (_, index) => `${index} `);
    await ask({ pieces, stepMs: 10 });
    await answer().locator('.text').getByText('20 21 22').waitFor();
    await stack.gateway.kill();
    await note().getByText('Connection lost').waitFor();
    await stack.gateway.revive();
    await ended();
    expect(await answer().locator('.text').textContent()).toBe(pieces.join(''));
    complaints = [];
  });

  it('errors are told in words: a wrong key, a refusal, an end in the middle', async () => {
    await enterKey('sk-sluice-wrong');
    const alert = page.getByRole('alert');
    await alert.getByText('HTTP 401 · invalid_api_key').waitFor();
    await enterKey();
    await alert.waitFor({ state: 'hidden' });
    await ask({ pieces: ['one ', 'two '], error: { code: 'generation_failed', message: 'The engine has failed.', at: 1 } });
    await note().getByText('The engine has failed. — generation_failed').waitFor();
    expect(await answer().locator('.text').textContent()).toBe('one ');
    await page.getByRole('button', { name: 'New conversation' }).click();
    await page.getByText('Parameters').click();
    await page.getByLabel('Stop at').fill('x'.repeat(2_000));
    await ask('hello');
    await note().getByText('HTTP 400 · invalid_value').waitFor();
  });

  it('a field with a bad value is shown, and nothing is sent', async () => {
    await enterKey();
    await page.getByText('Parameters').click();
    await page.getByLabel('Answers at once').fill('9');
    await page.getByText('Parameters').click();
    const takenBefore = stack.source.taken.length;
    await ask('hello');
    await page.getByLabel('Answers at once').waitFor({ state: 'visible' });
    await page.getByLabel('Answers at once').fill('1');
    await page.getByRole('button', { name: 'Send' }).click();
    await ended();
    expect(stack.source.taken.length).toBe(takenBefore + 1);
  });

  it('keeps the key only when it is asked to', async () => {
    await enterKey();
    expect(await page.evaluate(() => JSON.stringify([localStorage, sessionStorage]))).not.toContain(stack.gateway.key);
    await page.getByLabel('Remember in this browser').check();
    await page.reload();
    expect(await page.getByLabel('Key', { exact: true }).inputValue()).toBe(stack.gateway.key);
    await page.getByLabel('Remember in this browser').uncheck();
    await page.reload();
    expect(await page.getByLabel('Key', { exact: true }).inputValue()).toBe('');
  });

  it('takes the key from the link that npm start prints, and out of the address', async () => {
    await page.goto('about:blank');
    await page.goto(`${stack.gateway.url}/#key=${stack.gateway.key}`);
    expect(await page.getByLabel('Key', { exact: true }).inputValue()).toBe(stack.gateway.key);
    expect(page.url()).toBe(`${stack.gateway.url}/`);
  });

  it.each(['light', 'dark'])('%s: nothing for axe to complain of, and nothing wider than a phone', async theme => {
    await page.setViewportSize({ width: 360, height: 740 });
    await page.getByLabel('Theme').selectOption(theme);
    await enterKey();
    await page.getByText('Parameters').click();
    await ask({ pieces: ['a long word: ', 'w'.repeat(200)] });
    await ended();
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(360);
    await page.evaluate(AXE);
    const found = await page.evaluate(
      "axe.run().then(({ violations }) => violations.map(({ id, nodes }) => [id, ...nodes.map(node => node.html)].join(' ')))",
    );
    expect(found).toEqual([]);
  });

  it('is one request under a strict policy, and cheap to ask for again', async () => {
    const response = await fetch(stack.gateway.url);
    expect(response.headers.get('content-security-policy')).toMatch(
      /^default-src 'none'; script-src 'sha256-[^']+'; style-src 'sha256-[^']+'; connect-src 'self'/,
    );
    const html = await response.text();
    expect(html).not.toMatch(/\b(src|href)="(?!#|data:)/);
    const again = await fetch(stack.gateway.url, { headers: { 'if-none-match': response.headers.get('etag')! } });
    expect(again.status).toBe(304);
    expect((await fetch(stack.gateway.url, { method: 'POST' })).status).toBe(405);
  });
});
