import { describe, expect, it } from 'vitest';
import { capacityIn, readable, warningIn } from '../../scripts/supervisor/log-line.ts';
import { WarningGate } from '../../scripts/supervisor/warning-gate.ts';

describe('a log line', () => {
  it.each([
    ['{"level":40,"msg":"slow"}', 'slow'],
    ['{"level":60,"msg":"cannot start","error":"no such file\\n  at x"}', 'cannot start: no such file'],
    ['{"level":50,"msg":"lost","err":{"type":"Error","message":"gone","stack":"…"}}', 'lost: gone'],
    ['{"at":"…","event":"fault","cause":"TypeError: x\\n at y"}', 'fault: TypeError: x'],
  ])('%s is shown', (line, shown) => expect(warningIn(line)).toBe(shown));

  it.each(['{"level":30,"msg":"fine"}', '{"event":"request","status":500}', 'plain text', '', '{broken', '{}'])('%s is not', line => {
    expect(warningIn(line)).toBeUndefined();
  });

  it('of a batcher tells its room for keys and values', () => {
    expect(capacityIn('{"level":30,"fullSequences":2,"msg":"KV cache of 64 tokens"}')).toBe('KV cache of 64 tokens');
    expect(capacityIn('{"level":30,"msg":"serving"}')).toBeUndefined();
    expect(capacityIn('plain')).toBeUndefined();
  });

  it('of another program stays as it is', () => {
    for (const line of ['plain', '{broken', '{}', '{"a":1}']) expect(readable(line)).toBe(line);
  });
});

it('a flood of warnings is shown in part, and again a minute later', () => {
  const lines: string[] = [];
  const gate = new WarningGate('/the/log', line => lines.push(line));
  for (let count = 0; count < 1000; count += 1) gate.say(`warning ${count}`, 5_000 + count);
  expect(lines).toHaveLength(11);
  expect(lines.at(-1)).toContain('/the/log');
  gate.say('later', 65_000);
  expect(lines.at(-1)).toBe('later');
});
