/** BatchRunner: every line has one result, whatever ends in between: the process, the window of time, the room, or somebody's patience. */
import { setImmediate } from 'node:timers/promises';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { BatchRunner, type BatchRunnerOptions, type LineCall, type LineResult } from '../../../gateway/batches/batch-runner.ts';
import { type BatchRecord, BatchStore } from '../../../gateway/batches/batch-store.ts';
import { FileStore } from '../../../gateway/batches/file-store.ts';
import { memorySql } from './memory-sql.ts';

const ENDPOINT = '/v1/chat/completions';
const request = (customId: string, more: object = {}) =>
  JSON.stringify({ custom_id: customId, method: 'POST', url: ENDPOINT, body: { say: customId }, ...more });
const good = (text: string): LineResult => ({
  ...{ outcome: 'answered', status: 200, requestId: 'req', body: JSON.stringify({ text }) },
  usage: { prompt_tokens: 3, completion_tokens: 2, prompt_tokens_details: { cached_tokens: 1 } },
});
const bad = (status: number): LineResult => ({ outcome: 'answered', status, requestId: 'req', body: '{"error":{}}', usage: {} });

type Execute = BatchRunnerOptions['execute'];

/** A tenant's stores, and the runner of the moment over them. */
class Bench {
  readonly #sql = memorySql();
  readonly files = new FileStore(this.#sql);
  readonly store = new BatchStore(this.#sql);
  readonly calls: LineCall[] = [];
  now = 0;
  #settings = { batchWindow: 4, maxBodyBytes: 1_000, maxStoredBytes: 1_000_000 };

  constructor(settings: Partial<BatchRunnerOptions['settings']> = {}) {
    Object.assign(this.#settings, settings);
  }

  add(text: string): string {
    const id = `batch_${this.now++}`;
    this.files.begin(`${id}-in`, 'batch');
    if (text !== '') this.files.append(`${id}-in`, new TextEncoder().encode(text));
    this.files.finish(`${id}-in`, { filename: '', createdAt: 0, expiresAt: 1e9 });
    this.store.put({
      ...{ id, tenant: 'acme', keyId: 'k', endpoint: ENDPOINT, inputFileId: `${id}-in`, outputFileId: undefined, errorFileId: undefined },
      ...{ state: 'validating', metadata: null, errors: [], total: 0, completed: 0, failed: 0, promptTokens: 0, cachedTokens: 0 },
      ...{
        completionTokens: 0,
        times: {},
        createdAt: this.now,
        expiresAt: 1_000_000,
        outputLifetimeMs: 10_000,
        scannedBytes: 0,
        scannedLines: 0,
      },
    });
    return id;
  }

  /** Of a new life of the process. */
  runner(execute: Execute): BatchRunner {
    return new BatchRunner({
      ...{ store: this.store, files: this.files, settings: this.#settings, clock: () => this.now, log: () => undefined },
      execute: (call, signal) => {
        this.calls.push(call);
        return execute(call, signal);
      },
    });
  }

  batch(id: string): BatchRecord {
    return this.store.find(id)!;
  }

  /** What a file says of each custom id. */
  results(
    fileId: string | undefined,
  ): Record<string, { response: { status_code: number; body: unknown } | null; error: { code: string } | null }> {
    const file = fileId === undefined ? undefined : this.files.find(fileId);
    if (file === undefined) return {};
    const lines = new TextDecoder()
      .decode(this.files.read(file.id, 0, file.bytes))
      .trimEnd()
      .split('\n')
      .map(line => JSON.parse(line));
    const named = Object.fromEntries(lines.map(line => [line.custom_id, line]));
    expect(Object.keys(named).length).toBe(lines.length);
    return named;
  }

  async until(condition: () => boolean): Promise<void> {
    while (!condition()) await setImmediate();
  }
}

const all = (count: number) => Array.from({ length: count }, (_, index) => `line-${index}`);

test('all lines, a few at once, and their counts and tokens', async () => {
  const bench = new Bench();
  const id = bench.add(
    all(20)
      .map(name => request(name))
      .join('\n'),
  );
  let [open, most] = [0, 0];
  const runner = bench.runner(async call => {
    most = Math.max(most, ++open);
    await setImmediate();
    open--;
    return call.body.say === 'line-7' ? bad(400) : good(String(call.body.say));
  });
  await runner.wake();
  await bench.until(() => bench.batch(id).state === 'completed');
  const batch = bench.batch(id);
  expect(batch).toMatchObject({ total: 20, completed: 19, failed: 1, promptTokens: 57, cachedTokens: 19, completionTokens: 38 });
  expect(most).toBe(4);
  const results = bench.results(batch.outputFileId);
  expect(Object.keys(results).sort()).toEqual(
    all(20)
      .filter(name => name !== 'line-7')
      .sort(),
  );
  expect(results['line-3']).toMatchObject({ response: { status_code: 200, body: { text: 'line-3' } }, error: null });
  expect(bench.results(batch.errorFileId)).toMatchObject({ 'line-7': { response: { status_code: 400 }, error: null } });
  expect(bench.calls[0]).toEqual({ tenant: 'acme', keyId: 'k', endpoint: ENDPOINT, body: { say: 'line-0' }, idempotencyKey: `${id}-1` });
});

test('a process that ends at any moment: each line has one result', async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 30 }), fc.array(fc.nat(12), { maxLength: 6 }), async (count, lives) => {
      const bench = new Bench();
      const id = bench.add(
        all(count)
          .map(name => request(name))
          .join('\n'),
      );
      for (const answers of lives) {
        // This life is over after so many answers; what it still waits for it never hears of.
        let left = answers;
        await bench.runner(async call => (left-- > 0 ? good(String(call.body.say)) : await new Promise<never>(() => undefined))).wake();
        await bench.until(() => left <= 0 || bench.batch(id).state === 'completed');
      }
      void bench.runner(async call => good(String(call.body.say))).wake();
      await bench.until(() => bench.batch(id).state === 'completed');
      expect(Object.keys(bench.results(bench.batch(id).outputFileId)).length).toBe(count);
      expect(bench.batch(id)).toMatchObject({ total: count, completed: count, failed: 0 });
      // Every try of a line is known as the same.
      expect(new Set(bench.calls.map(call => call.idempotencyKey)).size).toBe(count);
    }),
    { numRuns: 30 },
  );
});

test('what fails by our fault is tried three times, what the client did wrong once, and what is too early as often as it takes', async () => {
  const bench = new Bench();
  const id = bench.add([request('ours'), request('yours'), request('early'), request('mended')].join('\n'));
  const tries = new Map<string, number>();
  const runner = bench.runner(async call => {
    const name = String(call.body.say);
    const count = (tries.get(name) ?? 0) + 1;
    tries.set(name, count);
    if (name === 'ours') return bad(500);
    if (name === 'yours') return bad(400);
    if (name === 'mended') return count < 3 ? bad(500) : good('well');
    return count < 6 ? { outcome: 'later', afterMs: 10 } : good('now');
  });
  await bench.until(() => {
    if (runner.runningCount === 0) bench.now += 1_000;
    void runner.wake();
    return bench.batch(id).state === 'completed';
  });
  expect(Object.fromEntries(tries)).toEqual({ ours: 3, yours: 1, early: 6, mended: 3 });
  expect(bench.batch(id)).toMatchObject({ completed: 2, failed: 2 });
});

test.each<['cancelled' | 'expired', string]>([
  ['cancelled', 'batch_cancelled'],
  ['expired', 'batch_expired'],
])('%s: what runs is stopped, and every line that has no result says why', async (state, code) => {
  const bench = new Bench();
  const id = bench.add(
    all(700)
      .map(name => request(name))
      .join('\n'),
  );
  let stopped = 0;
  const runner = bench.runner(async (call, signal) => {
    if (call.body.say === 'line-0') return good('first');
    await new Promise<void>(resolve => signal.addEventListener('abort', () => resolve()));
    stopped++;
    return call.body.say === 'line-1' ? good('just in time') : bad(400);
  });
  await runner.wake();
  await bench.until(() => bench.batch(id).completed === 1);
  if (state === 'cancelled') expect(runner.cancel(bench.batch(id))).toBe(true);
  else bench.now = 1_000_000;
  void runner.wake();
  await bench.until(() => bench.batch(id).state === state);
  const batch = bench.batch(id);
  expect(stopped).toBe(4);
  expect(batch).toMatchObject({ total: 700, completed: 2, failed: 698 });
  expect(Object.keys(bench.results(batch.outputFileId))).toEqual(['line-0', 'line-1']);
  const errors = Object.values(bench.results(batch.errorFileId));
  expect(errors.length).toBe(698);
  expect(errors.every(line => line.response === null && line.error?.code === code)).toBe(true);
  expect(runner.cancel(batch)).toBe(false);
});

test('no room for more results: it ends, says why, and what there is stays', async () => {
  const bench = new Bench({ maxStoredBytes: 4_000 });
  const id = bench.add(
    all(20)
      .map(name => request(name))
      .join('\n'),
  );
  void bench.runner(async () => good('x'.repeat(400))).wake();
  await bench.until(() => bench.batch(id).state === 'cancelled');
  const batch = bench.batch(id);
  expect(batch.errors).toMatchObject([{ code: 'storage_full', line: null }]);
  expect(Object.keys(bench.results(batch.outputFileId)).length).toBe(batch.completed);
  expect(batch.completed).toBeGreaterThan(0);
});

test.each<[string, string, object[]]>([
  ['nothing', '', [{ code: 'empty_file', line: null }]],
  ['blank lines only', '\n \r\n', [{ code: 'empty_file' }]],
  ['no JSON', `${request('a')}\n{\n`, [{ code: 'invalid_json_line', line: 2 }]],
  ['no object', '[1]\n"a"', [{ line: 1 }, { code: 'invalid_json_line', line: 2 }]],
  [
    'no custom_id',
    JSON.stringify({ method: 'POST', url: ENDPOINT, body: {} }),
    [{ code: 'missing_required_parameter', param: 'custom_id' }],
  ],
  ['an empty custom_id', request(''), [{ code: 'invalid_value', param: 'custom_id' }]],
  ['a custom_id that is none', request('a', { custom_id: 5 }), [{ code: 'invalid_value', param: 'custom_id' }]],
  ['one twice', `${request('a')}\n\n${request('b')}\n${request('a')}`, [{ code: 'duplicate_custom_id', line: 4 }]],
  ['another method', request('a', { method: 'GET' }), [{ code: 'invalid_method', param: 'method' }]],
  ['another endpoint', request('a', { url: '/v1/embeddings' }), [{ code: 'mismatched_url', param: 'url' }]],
  ['a body that is none', request('a', { body: 'text' }), [{ code: 'invalid_value', param: 'body' }]],
  ['a line that is too long', request('a', { body: { text: 'x'.repeat(1_100) } }), [{ code: 'line_too_long', line: 1 }]],
])('an input with %s fails whole, and says where', async (_, text, errors) => {
  const bench = new Bench();
  const id = bench.add(text);
  await bench.runner(async () => good('never')).wake();
  expect(bench.batch(id)).toMatchObject({ state: 'failed', total: 0 });
  expect(bench.batch(id).errors).toMatchObject(errors);
  expect([bench.calls, bench.store.linesLeft(id, 1)]).toEqual([[], []]);
});

test('bytes that are no text, a BOM, Windows line ends, and a hundred faults at most', async () => {
  const bench = new Bench();
  const bom = bench.add(`\ufeff${request('a')}\r\n${request('b')}\r\n`);
  const faulty = bench.add('{\n'.repeat(500));
  const noText = bench.add('');
  bench.files.append(`${noText}-in`, new Uint8Array([0x7b, 0xff, 0x7d]));
  await bench.runner(async () => good('')).wake();
  await bench.until(() => bench.batch(bom).state === 'completed');
  expect(bench.batch(bom).completed).toBe(2);
  expect(bench.batch(faulty).errors.length).toBe(100);
  expect(bench.batch(noText).errors).toMatchObject([{ code: 'invalid_json_line', message: 'This line is not valid UTF-8.' }]);
});

test('of batches that are over the newest stay', async () => {
  const bench = new Bench();
  const over = [bench.add(''), bench.add(''), bench.add('')];
  await bench.runner(async () => good('')).wake();
  const running = bench.add(request('a'));
  bench.store.trim(2);
  const left = bench.store.list({ after: undefined, limit: 9, order: 'desc' }).map(({ id }) => id);
  expect(left).toEqual([running, over[2], over[1]]);
});
