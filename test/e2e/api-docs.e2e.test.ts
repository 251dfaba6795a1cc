/** /docs in a real browser: the description is shown and can be tried, and nothing comes from or goes to anywhere else. */

import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readerIn } from '../../deploy/docs-reader.ts';
import { type Stack, startStack } from '../gateway/stack.ts';
import { chromiumPath, openChromium } from './chromium.ts';

const chromium = await chromiumPath();
const PATIENCE = { timeout: 60_000 };

let stack: Stack;
beforeAll(async () => {
  stack = await startStack();
});
afterAll(() => stack?.stop());

it('the reader is sent compressed to whoever takes that, and is the same to others', async () => {
  const load = (encoding: string) => fetch(`${stack.gateway.url}/docs/reader.js`, { headers: { 'accept-encoding': encoding } });
  const [compressed, plain] = [await load('gzip'), await load('identity')];
  expect(compressed.headers.get('content-encoding')).toBe('gzip');
  expect(plain.headers.get('content-encoding')).toBeNull();
  const text = await compressed.text();
  expect(text.length).toBeGreaterThan(1_000_000);
  expect(await plain.text()).toBe(text);
});

it('another form of the package that holds it is an error while bundling', () => {
  expect(readerIn('x;\nvar standalone_default = "a\\"\\n";\ny')).toBe('a"\n');
  expect(() => readerIn('var standalone_default = "a" + run();')).toThrow('another form');
  expect(() => readerIn('')).toThrow('another form');
});

describe.skipIf(chromium === undefined)('the page', () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await openChromium(chromium!);
  });
  afterAll(() => browser?.close());

  it('shows every call, and asks nobody but the gateway', async () => {
    const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    const asked = new Set<string>();
    const faults: string[] = [];
    page.on('request', request => asked.add(request.url()));
    page.on('pageerror', error => faults.push(String(error)));
    await page.goto(`${stack.gateway.url}/docs`);
    await page.getByRole('heading', { name: 'Answers a conversation.' }).first().waitFor(PATIENCE);
    await page.getByText('Bearer Token').first().waitFor(PATIENCE);
    expect(await page.getByText('/v1/chat/completions').count()).toBeGreaterThan(0);
    const local = [...asked].filter(url => !url.startsWith('data:') && !url.startsWith('blob:'));
    expect(local).toContain(`${stack.gateway.url}/openapi.json`);
    expect(local.filter(url => !url.startsWith(stack.gateway.url))).toEqual([]);
    expect(faults).toEqual([]);
    await page.close();
  });
});
