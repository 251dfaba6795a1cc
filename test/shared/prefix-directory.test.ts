/** The edge's directory of prefixes: updates, gaps, snapshots, matches. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  decodeSnapshot,
  decodeUpdate,
  encodeHead,
  encodeUpdate,
  PrefixDirectory,
  type PrefixSnapshot,
  type PrefixUpdate,
} from '../../shared/prefix-directory.ts';

const hash = (n: number) => n.toString(36).padStart(11, '-');
const update = (seq: number, parts: Partial<PrefixUpdate> = {}): PrefixUpdate => ({
  batcherId: 'a',
  epoch: 1,
  seq,
  added: [],
  evicted: [],
  ...parts,
});
const adds = (...numbers: number[]) => ({ added: numbers.map(n => [hash(n), 16 * n] as const) });
const holds = (directory: PrefixDirectory, batcherId: string, n: number) =>
  directory.match([hash(n)]).some(match => match.batcherId === batcherId);

describe('the wire form', () => {
  it('gives back what was encoded', () => {
    fc.assert(
      fc.property(fc.nat(), fc.nat(), fc.array(fc.tuple(fc.nat(), fc.nat())), fc.array(fc.nat()), (epoch, seq, added, evicted) => {
        const sent = update(seq, { epoch, added: added.map(([n, tokens]) => [hash(n), tokens]), evicted: evicted.map(hash) });
        expect(decodeUpdate(encodeUpdate(sent))).toEqual(sent);
      }),
    );
  });

  const good = JSON.parse(encodeUpdate(update(1, adds(1, 2)))) as Record<string, unknown>;
  it.each<[string, unknown]>([
    ['no JSON', '{'],
    ['no object', 'null'],
    ['another version', { ...good, version: 2 }],
    ['no version', { ...good, version: undefined }],
    ['half a hash', { ...good, added: hash(1).slice(1), tokens: [1] }],
    ['a hash without tokens', { ...good, tokens: [1] }],
    ['a hash with other characters', { ...good, evicted: '.'.repeat(11) }],
    ['tokens below 0', { ...good, tokens: [1, -1] }],
    ['tokens that are no number', { ...good, tokens: [1, null] }],
    ['a sequence number that is none', { ...good, seq: 1.5 }],
    ['no batcher', { ...good, batcherId: '' }],
  ])('is undefined for %s', (_, wire) => {
    expect(decodeUpdate(typeof wire === 'string' ? wire : JSON.stringify(wire))).toBeUndefined();
  });

  it('leaves room for fields of later versions', () => {
    expect(decodeUpdate(JSON.stringify({ ...good, later: 1 }))).toEqual(update(1, adds(1, 2)));
  });

  it('reads a snapshot, without what does not belong in it', () => {
    const head = encodeHead({ epoch: 5, seq: 7 });
    expect(decodeSnapshot('a', { head, [hash(1)]: '16', [hash(2)]: 'x', [hash(3)]: '-1', short: '3' })).toEqual({
      batcherId: 'a',
      epoch: 5,
      seq: 7,
      held: [[hash(1), 16]],
    });
    expect(decodeSnapshot('a', {})).toBeUndefined();
    expect(decodeSnapshot('a', { head: '2.5.7' })).toBeUndefined();
    expect(decodeSnapshot('a', { head: 'garbage', [hash(1)]: '16' })).toBeUndefined();
  });
});

describe('following a batcher', () => {
  it('begins with update 0, applies the next, and knows the old ones', () => {
    const directory = new PrefixDirectory();
    expect(directory.apply(update(0, adds(1)))).toBe('applied');
    expect(directory.apply(update(1, adds(2)))).toBe('applied');
    expect(directory.apply(update(2, { evicted: [hash(1)] }))).toBe('applied');
    expect(directory.apply(update(1, adds(1)))).toBe('known');
    expect(holds(directory, 'a', 1)).toBe(false);
    expect(holds(directory, 'a', 2)).toBe(true);
    directory.check();
  });

  it('notices a gap, keeps what came behind it aside, and goes on from a snapshot', () => {
    const directory = new PrefixDirectory();
    directory.apply(update(0, adds(1)));
    expect(directory.apply(update(2, adds(3)))).toBe('gap');
    expect(directory.apply(update(3, { evicted: [hash(2)], ...adds(4) }))).toBe('gap');
    // What is known is still right for the state it was told in.
    expect(holds(directory, 'a', 1)).toBe(true);
    expect(holds(directory, 'a', 3)).toBe(false);
    const held = [hash(1), hash(2)].map(each => [each, 16] as const);
    expect(directory.load({ batcherId: 'a', epoch: 1, seq: 1, held })).toBe('applied');
    expect([1, 2, 3, 4].map(n => holds(directory, 'a', n))).toEqual([true, false, true, true]);
    expect(directory.apply(update(4))).toBe('applied');
    directory.check();
  });

  it('says so when a snapshot is too old to close the gap', () => {
    const directory = new PrefixDirectory();
    expect(directory.apply(update(5))).toBe('gap');
    expect(directory.load({ batcherId: 'a', epoch: 1, seq: 3, held: [] })).toBe('gap');
    expect(directory.load({ batcherId: 'a', epoch: 1, seq: 4, held: [] })).toBe('applied');
    expect(directory.apply(update(6))).toBe('applied');
  });

  it('takes a new epoch from its beginning, and nothing of an old one', () => {
    const directory = new PrefixDirectory();
    directory.load({ batcherId: 'a', epoch: 2, seq: 9, held: [[hash(1), 16]] });
    expect(directory.apply(update(0, adds(7)))).toBe('known');
    expect(directory.load({ batcherId: 'a', epoch: 1, seq: 20, held: [] })).toBe('known');
    expect(holds(directory, 'a', 1)).toBe(true);
    expect(directory.apply(update(0, { epoch: 3, ...adds(2) }))).toBe('applied');
    expect([1, 2].map(n => holds(directory, 'a', n))).toEqual([false, true]);
    expect(directory.apply(update(2, { epoch: 4 }))).toBe('gap');
  });

  it('forgets a batcher that is gone, and keeps the others', () => {
    const directory = new PrefixDirectory();
    directory.apply(update(0, adds(1)));
    directory.apply(update(0, { batcherId: 'b', ...adds(1) }));
    directory.apply(update(5));
    directory.remove('a');
    expect(directory.batcherIds).toEqual(['b']);
    expect(directory.match([hash(1)]).map(match => match.batcherId)).toEqual(['b']);
    // Also what was kept aside: otherwise it would come up in a later life.
    expect(directory.load({ batcherId: 'a', epoch: 1, seq: 4, held: [] })).toBe('applied');
    expect(directory.apply(update(5, adds(2)))).toBe('applied');
  });

  it('holds no more of a batcher than its bound, whatever that tells', () => {
    const directory = new PrefixDirectory({ maxEntries: 3 });
    directory.apply(update(0, adds(1, 2, 3, 4, 5)));
    directory.check();
    expect(directory.entryCount).toBe(3);
    expect([1, 2, 3, 4, 5].map(n => holds(directory, 'a', n))).toEqual([false, false, true, true, true]);
    directory.load({ batcherId: 'a', epoch: 1, seq: 1, held: [6, 7, 8, 9].map(n => [hash(n), 1]) });
    for (let seq = 100; seq < 300; seq++) directory.apply(update(seq));
    directory.check();
    expect(directory.entryCount).toBe(3);
  });
});

describe('matching', () => {
  it('goes to the first block that is not held; the longest first', () => {
    const directory = new PrefixDirectory();
    directory.apply(update(0, { batcherId: 'short', ...adds(1) }));
    directory.apply(update(0, { batcherId: 'long', ...adds(1, 2, 3) }));
    directory.apply(update(0, { batcherId: 'holed', ...adds(1, 2, 4) }));
    directory.apply(update(0, { batcherId: 'late', ...adds(2, 3, 4) }));
    expect(directory.match([1, 2, 3, 4].map(hash))).toEqual([
      { batcherId: 'long', blockCount: 3, tokens: 48 },
      { batcherId: 'holed', blockCount: 2, tokens: 32 },
      { batcherId: 'short', blockCount: 1, tokens: 16 },
    ]);
    expect(directory.match([])).toEqual([]);
    expect(directory.match([hash(9)])).toEqual([]);
  });
});

it('ends up where the batchers are, over a stream that loses, repeats and lags', () => {
  const change = fc.record({
    batcher: fc.nat(1),
    adds: fc.array(fc.nat(20), { maxLength: 3 }),
    evicts: fc.array(fc.nat(20), { maxLength: 3 }),
    fate: fc.constantFrom('arrives', 'arrives', 'arrives', 'lost', 'twice', 'late'),
    restart: fc.nat(9),
  });
  fc.assert(
    fc.property(fc.array(change, { maxLength: 60 }), changes => {
      const directory = new PrefixDirectory();
      const truth = new Map<string, { epoch: number; seq: number; held: Map<string, number> }>();
      const late: PrefixUpdate[] = [];
      const snapshot = (batcherId: string): PrefixSnapshot => {
        const { epoch, seq, held } = truth.get(batcherId)!;
        return { batcherId, epoch, seq, held: [...held] };
      };
      const receive = (told: PrefixUpdate) => {
        if (directory.apply(told) === 'gap') expect(directory.load(snapshot(told.batcherId))).not.toBe('gap');
        directory.check();
      };
      for (const { batcher, adds: added, evicts, fate, restart } of changes) {
        const batcherId = `batcher-${batcher}`;
        const before = truth.get(batcherId);
        const isAnew = before === undefined || restart === 0;
        const state = isAnew
          ? { epoch: (before?.epoch ?? 0) + 1, seq: 0, held: new Map<string, number>() }
          : { ...before, seq: before.seq + 1 };
        const told: PrefixUpdate = {
          batcherId,
          epoch: state.epoch,
          seq: state.seq,
          added: added.filter(n => !evicts.includes(n)).map(n => [hash(n), n]),
          evicted: evicts.map(hash),
        };
        for (const [each, tokens] of told.added) state.held.set(each, tokens);
        for (const each of told.evicted) state.held.delete(each);
        truth.set(batcherId, state);
        if (fate === 'late') late.push(told);
        else if (fate !== 'lost') receive(told);
        if (fate === 'twice') receive(told);
      }
      late.forEach(receive);
      for (const batcherId of truth.keys()) {
        // The next word of each, whatever was lost before.
        const state = truth.get(batcherId)!;
        state.seq += 1;
        receive({ batcherId, epoch: state.epoch, seq: state.seq, added: [], evicted: [] });
        for (let n = 0; n <= 20; n++) expect(holds(directory, batcherId, n)).toBe(state.held.has(hash(n)));
      }
    }),
    { numRuns: 500 },
  );
});
