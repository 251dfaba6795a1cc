import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openRowPasses } from '../../../batcher/engine/foreign.ts';
import { whyNoKernels, writeKernels } from '../../../batcher/engine/kernels/kernel-library.ts';
import { defaultCacheRoot } from '../../../batcher/model/cache-root.ts';
import { CounterRandom } from '../../../batcher/sampling/counter-random.ts';
import { MASS_BINS } from '../../../batcher/sampling/row-kernels.ts';
import { type KernelSource, SamplingScratch } from '../../../batcher/sampling/sampling-scratch.ts';

const logit = fc.oneof(
  { weight: 8, arbitrary: fc.float({ min: -60, max: 60, noNaN: true }) },
  fc.constantFrom(-Infinity, Number.NaN, 0, -0, -3e38),
);
const logits = fc.array(logit, { minLength: 1, maxLength: 1300 }).map(values => Float32Array.from([...values, 1]));

let folder: string;
let open: KernelSource | undefined;

function scanned(values: Float32Array) {
  const { model } = new SamplingScratch(values.length, open);
  model.load(values);
  return model;
}

/** What the host can run. */
const KINDS = whyNoKernels() === undefined ? (['WebAssembly', 'the kernel library'] as const) : (['WebAssembly'] as const);

describe.each(KINDS)('RowKernels in %s against plain loops', kind => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'sluice-rows-'));
    const library = join(folder, 'kernels.so');
    if (kind !== 'WebAssembly') await writeKernels(library, join(defaultCacheRoot(), 'kernels'));
    open = kind === 'WebAssembly' ? undefined : bytes => openRowPasses(library, bytes);
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  test('largest value and its lowest id', () => {
    fc.assert(
      fc.property(logits, values => {
        const row = scanned(values);
        const max = Math.max(...values.filter(value => !Number.isNaN(value)));
        expect(row.max).toBe(Math.fround(max));
        expect(row.argmax()).toBe(values.indexOf(max));
      }),
      { seed: 3 },
    );
  });

  test('collect: every id from the bound on, ascending', () => {
    fc.assert(
      fc.property(logits, fc.float({ min: -50, max: 50, noNaN: true }), (values, least) => {
        const row = scanned(values);
        const expected = Array.from(values.keys()).filter(id => values[id]! >= least);
        expect(Array.from(row.ids.subarray(0, row.collect(least)))).toEqual(expected);
      }),
      { seed: 4 },
    );
  });

  test('masses by distance, and the tokens of each', () => {
    fc.assert(
      fc.property(logits, fc.constantFrom(0.02, 1, 30, 500), fc.nat(1023), (values, span, chosen) => {
        const row = scanned(values);
        row.weigh(1);
        const step = Math.fround(MASS_BINS / span);
        const binOf = (value: number): number => Math.trunc(Math.fround(Math.fround(row.max - value) * step));
        const masses = row.massesWithin(span);
        const expected = new Float64Array(MASS_BINS);
        values.forEach((value, id) => {
          if (binOf(value) < MASS_BINS) expected[binOf(value)]! += row.weights[id]!;
        });
        expect(masses).toEqual(expected);
        const idsOf = (bin: number): number[] => Array.from(values.keys()).filter(id => binOf(values[id]!) === bin);
        for (const bin of [0, chosen, binOf(values[0]!)].filter(bin => bin < MASS_BINS)) {
          expect(Array.from(row.ids.subarray(0, row.collectBin(bin)))).toEqual(idsOf(bin));
        }
      }),
      { seed: 6 },
    );
  });

  test('weights and their sums', () => {
    fc.assert(
      fc.property(logits, fc.constantFrom(0.5, 1, 3.3), fc.float({ min: -50, max: 50, noNaN: true }), (values, inverse, least) => {
        const row = scanned(values);
        const distanceOf = (value: number): number => (row.max - value) * inverse;
        const weightOf = (value: number): number => (distanceOf(value) < 40 ? Math.exp(-distanceOf(value)) : 0);
        const total = row.weigh(inverse);
        values.forEach((value, id) => {
          if (Math.abs(distanceOf(value) - 40) < 1e-4) return;
          expect(Math.abs(row.weights[id]! - weightOf(value))).toBeLessThanOrEqual(6e-6 * weightOf(value));
        });
        const sum = (predicate: (value: number) => boolean): number =>
          values.filter(predicate).reduce((all, value) => all + weightOf(value), 0);
        expect(total).toBeCloseTo(
          sum(() => true),
          4,
        );
        const distances = values.reduce((all, value) => all + (weightOf(value) > 0 ? weightOf(value) * (row.max - value) : 0), 0);
        expect(row.sumDistances()).toBeCloseTo(distances, 3);
        expect(row.sumAbove(least)).toBeCloseTo(
          sum(value => value >= least),
          4,
        );
      }),
      { seed: 5 },
    );
  });

  test.each([
    { deviation: 3, temperature: 0.7 },
    { deviation: 3, temperature: 1 },
    { deviation: 3, temperature: 2 },
    { deviation: 0.5, temperature: 1 },
    { deviation: 0.01, temperature: 1 },
  ])(
    'total variation from the exact distribution stays under 1e-6: deviation $deviation, temperature $temperature',
    ({ deviation, temperature }) => {
      const random = new CounterRandom(11, 0);
      const values = Float32Array.from({ length: 49_152 }, (_, i) => {
        return deviation * Math.sqrt(-2 * Math.log(1 - random.at(2 * i))) * Math.cos(2 * Math.PI * random.at(2 * i + 1));
      });
      const row = scanned(values);
      const total = row.weigh(1 / temperature);
      const exact = Float64Array.from(values, value => Math.exp((value - row.max) / temperature));
      const exactTotal = exact.reduce((sum, weight) => sum + weight, 0);
      const difference = exact.reduce((sum, weight, id) => sum + Math.abs(weight / exactTotal - row.weights[id]! / total), 0) / 2;
      expect(difference).toBeLessThan(1e-6);
    },
  );
});
