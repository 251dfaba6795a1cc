/** The API's description held against the gateway by schemathesis: calls made up from it, and every reply measured by it. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { adminClient } from '../gateway/admin-client.ts';
import { type Stack, startStack } from '../gateway/stack.ts';
import { pythonPath, runPython } from './python-packages.ts';

const REQUIREMENT = 'schemathesis==4.32.5';
const CHECKS = [
  'not_a_server_error',
  'status_code_conformance',
  'content_type_conformance',
  'response_schema_conformance',
  'response_headers_conformance',
];
const TIMEOUT_MS = 600_000;

let stack: Stack;
let folder: string;
let path: string;

beforeAll(async () => {
  path = await pythonPath(REQUIREMENT);
  folder = await mkdtemp(join(tmpdir(), 'sluice-schemathesis-'));
  stack = await startStack({ bindings: { SLUICE_ACCESS_LOG: 'on' } });
}, TIMEOUT_MS);
afterAll(async () => {
  await stack?.stop();
  await rm(folder, { recursive: true, force: true });
});

/** The number of calls, all of whose replies were right; throws with the tool's report when one was not. */
async function measure(key: string, ...more: string[]): Promise<number> {
  const report = await runPython('from schemathesis.cli import schemathesis; schemathesis()', {
    path,
    folder,
    timeoutMs: TIMEOUT_MS,
    args: [
      ...['run', `${stack.gateway.url}/openapi.json`, '--checks', CHECKS.join(',')],
      ...['--seed', '1', '--no-color', '--generation-database', 'none', '--no-shrink', '--continue-on-failure'],
      ...['--header', `Authorization: Bearer ${key}`, '--request-timeout', '60'],
      ...more,
    ],
  });
  const counts = /(\d+) generated, (\d+) passed/.exec(report);
  if (counts === null || counts[1] !== counts[2]) throw new Error(report);
  return Number(counts[1]);
}

const statuses = () =>
  new Set(
    stack.gateway
      .output()
      .split('\n')
      .flatMap(line => /"event":"request".*"status":(\d+)/.exec(line)?.[1] ?? []),
  );

test(
  'the operator: every call, sound, faulty and one after the other',
  async () => {
    expect(await measure(stack.gateway.key, '--max-examples', '10')).toBeGreaterThan(1_000);
    expect(await fetch(`${stack.gateway.url}/ready`).then(reply => reply.status)).toBe(200);
    for (const status of ['200', '201', '202', '400', '401', '404', '405']) expect(statuses()).toContain(status);
  },
  TIMEOUT_MS,
);

test(
  "a tenant's key with a small limit, and a key that is none",
  async () => {
    const { key } = await adminClient(stack.gateway).makeKey({ tenant: 'small', limits: { requests_per_minute: 5 } });
    const brief = ['--phases', 'examples,fuzzing', '--max-examples', '12'];
    expect(await measure(key, ...brief)).toBeGreaterThan(100);
    expect(await measure('sk-sluice-none', ...brief)).toBeGreaterThan(100);
    for (const status of ['403', '429']) expect(statuses()).toContain(status);
  },
  TIMEOUT_MS,
);
