/** When the publisher tells what, over an outbox that can fail. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { HeldPrefixes } from '../../batcher/held-prefixes.ts';
import type { SnapshotStanding } from '../../batcher/prefix-outbox.ts';
import { PrefixPublisher } from '../../batcher/prefix-publisher.ts';
import { PREFIX_CHANGES_PER_ENTRY, PREFIX_INTERVAL_MS, PREFIX_LIFETIME_MS } from '../../shared/keys.ts';
import { prefixHashes } from '../../shared/prefix.ts';
import { PrefixDirectory, type PrefixUpdate } from '../../shared/prefix-directory.ts';

const tokens = (count: number, first = 0) => Array.from({ length: count }, (_, i) => first + i);

class Bench {
  readonly sent: PrefixUpdate[][] = [];
  readonly kept: { epoch: number; seq: number }[] = [];
  readonly errors: Error[] = [];
  readonly directory = new PrefixDirectory();
  standing: SnapshotStanding = 'ok';
  failure: Error | undefined;
  /** Resolves what is being sent, when sending is slow. */
  release: (() => void) | undefined;
  isSlow = false;
  withdrawnCount = 0;
  readonly held = new HeldPrefixes({
    blockTokens: 16,
    maxEntries: 10_000,
    maxClosed: 4,
    tokenBytes: () => new Uint8Array(0),
    pathTokenIds: () => [],
    onChanged: () => this.publisher.changed(),
  });
  readonly publisher: PrefixPublisher = new PrefixPublisher({
    batcherId: 'a',
    held: this.held,
    outbox: {
      send: async updates => {
        this.sent.push([...updates]);
        if (this.isSlow) {
          await new Promise<void>(resolve => {
            this.release = resolve;
          });
        }
        if (this.failure !== undefined) throw this.failure;
        for (const update of updates) this.directory.apply(update);
        return this.standing;
      },
      keep: async state => {
        this.kept.push({ epoch: state.epoch, seq: state.seq });
        return this.standing;
      },
      withdraw: async () => {
        this.withdrawnCount += 1;
      },
    },
    clock: () => Date.now(),
    onError: error => this.errors.push(error),
  });

  store(owner: string, count: number, firstBlock: number): void {
    const promptTokenIds = tokens(count, firstBlock * 10_000);
    this.held.open(owner, { tenant: 't', prompt: { kind: 'tokens', tokenIds: promptTokenIds }, promptTokenIds });
    this.held.stored({ owner, blockIds: tokens(Math.floor(count / 16), firstBlock) });
  }

  isKnown(count: number, firstBlock: number): boolean {
    const hashes = prefixHashes({ kind: 'tokens', tokenIds: tokens(count, firstBlock * 10_000) }, 't');
    return this.directory.match(hashes)[0]?.blockCount === hashes.length;
  }

  get sentCounts(): number[] {
    return this.sent.map(updates => updates.length);
  }
}

let bench: Bench;
beforeEach(() => {
  vi.useFakeTimers();
  bench = new Bench();
});
afterEach(async () => {
  bench.failure = undefined;
  bench.release?.();
  bench.isSlow = false;
  await bench.publisher.stop();
  vi.useRealTimers();
});

describe('telling', () => {
  it('begins with an empty state, then says nothing until something changes', async () => {
    bench.publisher.start();
    await vi.advanceTimersByTimeAsync(PREFIX_INTERVAL_MS);
    expect(bench.sent).toEqual([[{ batcherId: 'a', epoch: expect.any(Number), seq: 0, added: [], evicted: [] }]]);
    await vi.advanceTimersByTimeAsync(PREFIX_LIFETIME_MS / 3 - PREFIX_INTERVAL_MS - 1);
    expect(bench.sent).toHaveLength(1);
    bench.store('r', 64, 0);
    await vi.advanceTimersByTimeAsync(PREFIX_INTERVAL_MS);
    expect(bench.sent).toHaveLength(2);
    expect(bench.isKnown(64, 0)).toBe(true);
  });

  it('gathers what changes within an interval', async () => {
    bench.publisher.start();
    await vi.advanceTimersByTimeAsync(PREFIX_INTERVAL_MS);
    for (let i = 0; i < 10; i++) {
      bench.store(`r${i}`, 64, 100 * i);
      await vi.advanceTimersByTimeAsync(PREFIX_INTERVAL_MS / 20);
    }
    bench.held.evicted(3);
    await vi.advanceTimersByTimeAsync(PREFIX_INTERVAL_MS);
    expect(bench.sentCounts).toEqual([1, 1]);
    expect(bench.isKnown(64, 0)).toBe(false);
    expect(bench.isKnown(64, 900)).toBe(true);
  });

  it('cuts much into updates of a bounded size, all at once and numbered', async () => {
    bench.publisher.start();
    for (let i = 0; i < 3; i++) bench.store(`r${i}`, 64 * (PREFIX_CHANGES_PER_ENTRY - 100), 100_000 * i);
    await vi.advanceTimersByTimeAsync(PREFIX_INTERVAL_MS);
    expect(bench.sentCounts).toEqual([3]);
    expect(bench.sent[0]!.map(({ seq }) => seq)).toEqual([0, 1, 2]);
    for (const { added, evicted } of bench.sent[0]!) expect(added.length + evicted.length).toBeLessThanOrEqual(PREFIX_CHANGES_PER_ENTRY);
    expect(bench.directory.entryCount).toBe(3 * (PREFIX_CHANGES_PER_ENTRY - 100));
  });

  it('waits for what is being sent, and then sends what gathered meanwhile', async () => {
    bench.isSlow = true;
    bench.publisher.start();
    await vi.advanceTimersByTimeAsync(PREFIX_INTERVAL_MS);
    bench.store('r', 64, 0);
    await vi.advanceTimersByTimeAsync(10 * PREFIX_INTERVAL_MS);
    expect(bench.sent).toHaveLength(1);
    bench.isSlow = false;
    bench.release!();
    await vi.advanceTimersByTimeAsync(PREFIX_INTERVAL_MS);
    expect(bench.sent.map(updates => updates.map(({ seq }) => seq))).toEqual([[0], [1]]);
    expect(bench.isKnown(64, 0)).toBe(true);
  });
});

describe('when Redis', () => {
  it.each<[string, (bench: Bench) => void]>([
    ['fails', each => (each.failure = new Error('out of memory'))],
    ['has lost the state', each => (each.standing = 'behind')],
  ])('%s, everything is told in a later epoch', async (_, breakIt) => {
    bench.publisher.start();
    bench.store('r', 64, 0);
    await vi.advanceTimersByTimeAsync(PREFIX_INTERVAL_MS);
    breakIt(bench);
    bench.store('s', 128, 100);
    await vi.advanceTimersByTimeAsync(PREFIX_INTERVAL_MS);
    const tries = bench.sent.length;
    bench.failure = undefined;
    bench.standing = 'ok';
    await vi.advanceTimersByTimeAsync(2_000);
    expect(bench.sent).toHaveLength(tries + 1);
    const [first, last] = [bench.sent[0]![0]!, bench.sent.at(-1)![0]!];
    expect(last.epoch).toBeGreaterThan(first.epoch);
    expect([last.seq, last.added.length]).toEqual([0, 3]);
    expect(bench.isKnown(64, 0) && bench.isKnown(128, 100)).toBe(true);
    expect(bench.errors.length).toBe(_ === 'fails' ? 1 : 0);
  });

  it('goes on failing, it is not asked all the time', async () => {
    bench.failure = new Error('gone');
    bench.publisher.start();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(bench.sent.length).toBeGreaterThan(5);
    expect(bench.sent.length).toBeLessThan(15);
  });

  it('forgets the state of a batcher with nothing new, the next sign of life notices', async () => {
    bench.publisher.start();
    bench.store('r', 64, 0);
    await vi.advanceTimersByTimeAsync(PREFIX_LIFETIME_MS / 3);
    const { epoch } = bench.sent[0]![0]!;
    expect(bench.kept).toEqual([{ epoch, seq: 0 }]);
    expect(bench.sent).toHaveLength(1);
    bench.standing = 'behind';
    await vi.advanceTimersByTimeAsync(PREFIX_LIFETIME_MS / 3);
    bench.standing = 'ok';
    await vi.advanceTimersByTimeAsync(2_000);
    expect(bench.sent).toHaveLength(2);
    expect(bench.sent[1]![0]).toMatchObject({ seq: 0, added: [[expect.any(String), 48]] });
  });
});

it('once stopped says no more and takes back what it said', async () => {
  bench.publisher.start();
  await vi.advanceTimersByTimeAsync(PREFIX_INTERVAL_MS);
  await bench.publisher.stop();
  expect(bench.withdrawnCount).toBe(1);
  bench.store('r', 64, 0);
  await vi.advanceTimersByTimeAsync(2 * PREFIX_LIFETIME_MS);
  expect(bench.sent).toHaveLength(1);
  expect(bench.kept).toEqual([]);
});
