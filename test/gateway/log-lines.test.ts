import { beforeEach, describe, expect, it, vi } from 'vitest';
import { LogLines } from '../../gateway/log-lines.ts';

describe('lines of the log', () => {
  let printed: string[];
  let tasks: Promise<void>[];
  const later = (task: () => Promise<void>) => {
    tasks.push(task());
  };
  const lines = (gatherMs: number) => new LogLines({ gatherMs, print: text => printed.push(text) });

  beforeEach(() => {
    printed = [];
    tasks = [];
    vi.useFakeTimers();
    return () => vi.useRealTimers();
  });

  it('go out each by itself and at once where nothing is gathered', () => {
    const log = lines(0);
    log.write({ n: 1 }, later);
    log.write({ n: 2 }, later);
    expect(printed).toEqual(['{"n":1}', '{"n":2}']);
    expect(tasks).toEqual([]);
  });

  it('go out together after their time, in their order, by one task', async () => {
    const log = lines(20);
    log.write({ n: 1 }, later);
    vi.advanceTimersByTime(10);
    log.write({ n: 2 }, later);
    expect(printed).toEqual([]);
    vi.advanceTimersByTime(10);
    await Promise.all(tasks);
    expect(printed).toEqual(['{"n":1}\n{"n":2}']);
    expect(tasks).toHaveLength(1);
    log.write({ n: 3 }, later);
    vi.advanceTimersByTime(20);
    await Promise.all(tasks);
    expect(printed[1]).toBe('{"n":3}');
  });

  it('do not wait when there are many', () => {
    const log = lines(20);
    for (let n = 0; n < 128; n++) log.write({ n }, later);
    expect(printed.flatMap(text => text.split('\n'))).toHaveLength(128);
  });

  it('are sent by a later one when the runtime has ended the request that was to send them', async () => {
    const log = lines(20);
    vi.spyOn(globalThis, 'setTimeout').mockImplementationOnce((() => 0) as never);
    log.write({ n: 1 }, task => void task());
    vi.advanceTimersByTime(1_000);
    expect(printed).toEqual([]);
    log.write({ n: 2 }, later);
    expect(printed).toEqual(['{"n":1}\n{"n":2}']);
    log.write({ n: 3 }, later);
    vi.advanceTimersByTime(20);
    await Promise.all(tasks);
    expect(printed[1]).toBe('{"n":3}');
  });
});
