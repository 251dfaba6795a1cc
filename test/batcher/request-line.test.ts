/** RequestLine: a request is found in both logs by its trace, and no line tells what was asked or answered. */
import { afterEach, expect, test } from 'vitest';
import type { Generation } from '../../batcher/generation.ts';
import { requestLine, requestNames } from '../../batcher/request-line.ts';
import { makeJob, Rig } from './rig.ts';

const TRACEPARENT = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';

let rig: Rig | undefined;
afterEach(async () => {
  await rig?.close();
  rig = undefined;
});

async function lineOf(parts: Parameters<typeof makeJob>[0]): Promise<Record<string, unknown>> {
  const ended: Generation[] = [];
  rig = new Rig({ onEnded: generation => ended.push(generation) });
  const job = makeJob(parts);
  await rig.submit(job);
  await rig.settled();
  expect(ended.map(generation => generation.job.id)).toEqual([job.id]);
  return { ...requestLine(ended[0]!, job.submittedAt + 5) };
}

test('of a request that was answered', async () => {
  const text = 'mumpsimus';
  const line = await lineOf({ traceparent: TRACEPARENT, prompt: { kind: 'text', text } });
  expect(line).toMatchObject({
    ...{ traceId: '4bf92f3577b34da6a3ce929d0e0e4736', parentSpanId: '00f067aa0ba902b7', tenant: 'acme', attempt: 1 },
    ...{ reason: 'length', completionTokens: 12, e2eMs: 5 },
  });
  expect(JSON.stringify(line)).not.toContain(text);
});

test('of one that was refused, and without a trace', async () => {
  const line = await lineOf({ prompt: { kind: 'tokens', tokenIds: Array(1_000).fill(1) } });
  expect(line).toMatchObject({ reason: 'context_length_exceeded', completionTokens: 0 });
  expect(line).not.toHaveProperty('traceId');
});

test('a traceparent that is none names no trace', () => {
  expect(requestNames({ id: 'a', traceparent: 'nonsense' })).toEqual({ jobId: 'a' });
});
