import { describe, expect, test } from 'vitest';
import { CounterRandom } from '../../../batcher/sampling/counter-random.ts';
import { DraftRecord, SpeculationGate } from '../../../batcher/sampling/speculation-gate.ts';

interface Host {
  decodeMs: (rows: number) => number;
  verifyMs: (tokens: number) => number;
}

/** One sequence of `tokenCount` tokens in a batch of `rowCount`, its drafts right with `acceptance`: time with the gate over time without. */
function simulate(
  host: Host,
  { acceptance, rowCount = 1, tokenCount = 400, seed = 1 }: { acceptance: number; rowCount?: number; tokenCount?: number; seed?: number },
) {
  const gate = new SpeculationGate({ maxDrafts: 8, minGain: 1.05 });
  const record = new DraftRecord();
  const random = new CounterRandom(seed, 0);
  let position = 0;
  let tokens = 0;
  let ms = 0;
  let drafted = 0;
  while (tokens < tokenCount) {
    const drafts = gate.draftCount(record, rowCount);
    if (drafts === 0) {
      gate.observeDecode(rowCount, host.decodeMs(rowCount));
      record.observePlain(1);
      ms += host.decodeMs(rowCount);
      tokens++;
      continue;
    }
    let accepted = 0;
    while (accepted < drafts && random.at(position++) < acceptance) accepted++;
    const rest = rowCount > 1 ? host.decodeMs(rowCount - 1) : 0;
    if (rowCount > 1) gate.observeDecode(rowCount - 1, rest);
    gate.observeVerify(drafts + 1, host.verifyMs(drafts + 1));
    record.observe(drafts, accepted);
    drafted += drafts;
    ms += rest + host.verifyMs(drafts + 1);
    tokens += accepted + 1;
  }
  return { speedup: (tokens * host.decodeMs(rowCount)) / ms, drafted };
}

const cpu: Host = { decodeMs: rows => 13 + 3.5 * (rows - 1), verifyMs: tokens => 14 + 2.5 * (tokens - 1) };

describe('SpeculationGate', () => {
  test('pays where drafts are right', () => {
    expect(simulate(cpu, { acceptance: 0.95 }).speedup).toBeGreaterThan(1.8);
    expect(simulate(cpu, { acceptance: 0.8 }).speedup).toBeGreaterThan(1.3);
  });

  test('costs next to nothing where they are wrong', () => {
    for (const acceptance of [0, 0.1, 0.3, 0.5]) expect(simulate(cpu, { acceptance }).speedup).toBeGreaterThan(0.97);
  });

  test('stays off in a batch whose rows are nearly free', () => {
    const { speedup, drafted } = simulate(cpu, { acceptance: 0.5, rowCount: 8, tokenCount: 600 });
    expect(speedup).toBeGreaterThan(0.97);
    expect(drafted).toBeLessThan(60);
  });

  test('drafts nothing before plain steps are measured', () => {
    expect(new SpeculationGate({ maxDrafts: 4, minGain: 1 }).draftCount(new DraftRecord(), 1)).toBe(0);
  });

  test('comes back when a sequence begins to repeat itself', () => {
    const gate = new SpeculationGate({ maxDrafts: 8, minGain: 1.05 });
    const record = new DraftRecord();
    gate.observeDecode(1, 13);
    for (let tokens = 2; tokens <= 9; tokens++) gate.observeVerify(tokens, cpu.verifyMs(tokens));
    for (let i = 0; i < 20; i++) record.observe(2, 0);
    expect(gate.draftCount(record, 1)).toBe(0);
    let waited = 0;
    while (gate.draftCount(record, 1) === 0) {
      record.observePlain(1);
      expect(++waited).toBeLessThanOrEqual(512);
    }
    for (let i = 0; i < 20; i++) record.observe(2, 2);
    expect(gate.draftCount(record, 1)).toBeGreaterThan(2);
  });

  test('comes back from costs that were measured badly', () => {
    const gate = new SpeculationGate({ maxDrafts: 4, minGain: 1.05 });
    gate.observeDecode(1, 13);
    gate.observeVerify(3, 10_000);
    const record = new DraftRecord();
    let calls = 0;
    while (gate.draftCount(record, 1) === 0) expect(++calls).toBeLessThan(5_000);
  });

  test('refuses settings that mean nothing', () => {
    expect(() => new SpeculationGate({ maxDrafts: 0, minGain: 1.05 })).toThrow(RangeError);
    expect(() => new SpeculationGate({ maxDrafts: 4, minGain: -1 })).toThrow(RangeError);
  });
});
