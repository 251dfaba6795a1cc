import { describe, expect, test } from 'vitest';
import type { StepRecord } from '../../batcher/step-log.ts';
import { curvesAtPaces, NO_PATH } from '../../planner/service-curves.ts';
import { SimulatedEngine } from '../../planner/simulated-engine.ts';
import { fitSteps, pacesOf } from '../../planner/step-fit.ts';
import { CURVES } from './curves.ts';

const ENGINE = new SimulatedEngine({ ...CURVES, path: NO_PATH }, 32);
const COSTS = { copyMs: 0.02, requestMs: 5, alone: 1.1, beside: 1.3, outsideMs: 0.5 };
const extraMs = (rows: number) => 1 + rows / 4;

type Step = Partial<Pick<StepRecord, 'rows' | 'admitted' | 'copiedTokens'>> & { chunk?: { start: number; tokens: number } };

/** As a host would have it with these costs. */
function record({ rows = 0, admitted = 0, copiedTokens = 0, chunk }: Step): StepRecord {
  const contextTokens = rows * 200;
  const decodeMs = rows === 0 ? 0 : ENGINE.decodeMs(rows, contextTokens) + extraMs(rows) - COSTS.outsideMs;
  const share = rows > 0 ? COSTS.beside : COSTS.alone;
  const chunks = chunk === undefined ? [] : [{ ...chunk, ms: share * ENGINE.prefillMs(chunk.start, chunk.tokens), isVerification: false }];
  const engineMs = decodeMs + chunks.reduce((sum, { ms }) => sum + ms, 0);
  const outsideMs = (rows > 0 ? COSTS.outsideMs : 0) + COSTS.copyMs * copiedTokens + COSTS.requestMs * admitted;
  return { ...{ at: 0, stepMs: engineMs + outsideMs, engineMs, chunks, rows, contextTokens }, ...{ admitted, copiedTokens, dropped: 0 } };
}

const many = (count: number, step: (index: number) => Step) => Array.from({ length: count }, (_, index) => record(step(index)));

describe('of a log of steps', () => {
  const log = [
    ...[1, 4, 16].flatMap(rows => many(40, () => ({ rows }))),
    ...many(40, index => ({ rows: 4, copiedTokens: 16 * (index % 9) })),
    ...many(20, index => ({ rows: 4, admitted: 1, chunk: { start: 16, tokens: 40 + index } })),
    ...many(10, index => ({ admitted: 1, chunk: { start: 0, tokens: 100 + index } })),
  ];
  const fit = fitSteps(log, ENGINE);

  test('what streams add to a step is had for each number of them', () => {
    expect(fit.steps.map(({ rows }) => rows)).toEqual([1, 4, 16]);
    for (const { rows, extraMs: extra } of fit.steps) expect(extra).toBeCloseTo(extraMs(rows), 0);
  });

  test('prefill alone and beside streams are told apart', () => {
    expect(fit.prefillShare.alone).toBeCloseTo(COSTS.alone, 6);
    expect(fit.prefillShare.beside).toBeCloseTo(COSTS.beside, 6);
  });

  test('copies cost by the token, requests by the head', () => {
    expect(fit.requestMs).toBeCloseTo(COSTS.requestMs, 0);
    const copies = fitSteps([...many(40, () => ({ rows: 4 })), ...many(40, index => ({ rows: 4, copiedTokens: 16 * index }))], ENGINE);
    expect(copies.copyMsPerToken).toBeCloseTo(COSTS.copyMs, 6);
  });

  test('a hiccup of the machine is not what a step takes', () => {
    const steady = many(100, () => ({ rows: 4 }));
    const [last] = steady.splice(-1);
    const disturbed = fitSteps([...steady, { ...last!, stepMs: last!.stepMs + 900, engineMs: last!.engineMs + 900 }], ENGINE);
    expect(disturbed.steps).toEqual([{ rows: 4, extraMs: expect.closeTo(extraMs(4), 6) }]);
  });

  test('where nothing was measured it is as the engine alone has it', () => {
    expect(fitSteps([], ENGINE)).toEqual({ steps: [], prefillShare: { alone: 1, beside: 1 }, copyMsPerToken: 0, requestMs: 0 });
    expect(
      fitSteps(
        many(3, () => ({ rows: 4 })),
        ENGINE,
      ).steps,
    ).toEqual([]);
  });
});

test('how much slower than measured a host is, is told by kind', () => {
  const { copyMs: copyMsPerToken, requestMs, alone, beside } = COSTS;
  const path = {
    ...NO_PATH,
    requestMs,
    prefillShare: { alone, beside },
    steps: [1, 4, 16].map(rows => ({ rows, extraMs: extraMs(rows) })),
  };
  const curves = { ...CURVES, copyMsPerToken, path };
  const engine = new SimulatedEngine(curves, 32);
  const log = [
    ...many(5, () => ({ rows: 4 })),
    ...many(5, index => ({ rows: 16, copiedTokens: 16 * index })),
    ...many(5, () => ({ rows: 4, admitted: 1, chunk: { start: 16, tokens: 40 } })),
    ...many(5, () => ({ admitted: 1, chunk: { start: 0, tokens: 100 } })),
  ];
  const same = pacesOf(log, engine);
  for (const pace of Object.values(same)) expect(pace).toBeCloseTo(1, 6);
  expect(pacesOf([], engine)).toEqual({ alone: 1, beside: 1, streams: 1 });

  const chunkPace = (rows: number) => (rows > 0 ? 1.5 : 1.2);
  const slower = log.map(step => {
    const chunks = step.chunks.map(chunk => ({ ...chunk, ms: chunkPace(step.rows) * chunk.ms }));
    const [before, after] = [step.chunks, chunks].map(list => list.reduce((sum, { ms }) => sum + ms, 0));
    return { ...step, chunks, stepMs: 0.8 * (step.stepMs - before!) + after! };
  });
  const paces = pacesOf(slower, engine);
  expect(paces.alone).toBeCloseTo(1.2, 6);
  expect(paces.beside).toBeCloseTo(1.5, 6);
  expect(paces.streams).toBeCloseTo(0.8, 6);
  const again = pacesOf(slower, new SimulatedEngine(curvesAtPaces(curves, paces), 32));
  for (const pace of Object.values(again)) expect(pace).toBeCloseTo(1, 6);
});
