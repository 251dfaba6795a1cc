import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Candidates } from '../../../batcher/sampling/candidates.ts';
import { CounterRandom } from '../../../batcher/sampling/counter-random.ts';
import { SamplingScratch } from '../../../batcher/sampling/sampling-scratch.ts';
import { type ReferenceRequest, referenceProbabilities } from './reference-sampling.ts';

/** The ids that the sampler may draw, ascending. */
function allowed(logits: Float32Array, request: ReferenceRequest): number[] {
  const scratch = new SamplingScratch(logits.length);
  const row = scratch.model;
  row.load(logits);
  const candidates = new Candidates(scratch);
  const { topK, topP, minP, typicalP } = request;
  const cut = candidates.narrow(row, 1 / request.temperature, { topK, topP, minP, typicalP });
  if (cut === undefined) return Array.from(candidates.ids);
  return Array.from(logits.keys()).filter(id => logits[id]! >= cut && row.weights[id]! > 0);
}

/** Rows of every shape: peaked and flat, with many equal logits and without. */
function randomLogits(size: number, { seed, deviation, grid }: { seed: number; deviation: number; grid: number }): Float32Array {
  const random = new CounterRandom(seed, 0);
  return Float32Array.from({ length: size }, (_, i) => {
    const normal = Math.sqrt(-2 * Math.log(1 - random.at(2 * i))) * Math.cos(2 * Math.PI * random.at(2 * i + 1));
    const logit = normal * deviation;
    return grid === 0 ? logit : Math.round(logit / grid) * grid;
  });
}

const shape = fc.record({
  seed: fc.integer(),
  deviation: fc.constantFrom(0, 0.01, 0.5, 3, 8),
  grid: fc.constantFrom(0, 0.25, 2),
});
const share = fc.double({ min: 0.01, max: 0.999, noNaN: true });
const request = fc.record({
  temperature: fc.constantFrom(0.3, 0.8, 1, 2),
  topK: fc.option(fc.integer({ min: 2, max: 3000 }), { nil: undefined }),
  topP: fc.option(share, { nil: undefined }),
  minP: fc.option(fc.double({ min: 0.001, max: 1, noNaN: true }), { nil: undefined }),
  typicalP: fc.option(share, { nil: undefined }),
});

function agrees(logits: Float32Array, wanted: ReferenceRequest): boolean {
  const expected = referenceProbabilities(logits, wanted);
  if (expected === undefined) return false;
  expect(allowed(logits, wanted)).toEqual([...expected.keys()]);
  return true;
}

describe('the sets that may be drawn are those of a full sort', () => {
  test('small vocabularies, all narrowings together', () => {
    let compared = 0;
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 1500 }), shape, request, (size, rowShape, wanted) => {
        if (agrees(randomLogits(size, rowShape), wanted)) compared++;
      }),
      { numRuns: 500, seed: 1 },
    );
    expect(compared).toBeGreaterThan(250);
  });

  test('large vocabularies, each narrowing alone', () => {
    const one = fc.oneof(
      fc.record({ temperature: fc.constantFrom(0.7, 1.5), topP: share }),
      fc.record({ temperature: fc.constantFrom(0.7, 1.5), topK: fc.integer({ min: 2, max: 12_000 }) }),
      fc.record({ temperature: fc.constantFrom(0.7, 1.5), minP: fc.double({ min: 1e-6, max: 1, noNaN: true }) }),
      fc.record({ temperature: fc.constantFrom(0.7, 1.5), typicalP: share }),
      fc.record({ temperature: fc.constantFrom(0.7, 1.5), topP: share, minP: share }),
      fc.record({ temperature: fc.constantFrom(0.7, 1.5), topP: share, typicalP: share }),
    );
    let compared = 0;
    fc.assert(
      fc.property(shape, one, (rowShape, wanted) => {
        if (agrees(randomLogits(12_345, rowShape), wanted)) compared++;
      }),
      { numRuns: 120, seed: 2 },
    );
    expect(compared).toBeGreaterThan(60);
  });

  test('equal logits: lower ids first, exactly as many as the mass asks for', () => {
    const equal = new Float32Array(8).fill(1.5);
    expect(allowed(equal, { temperature: 1, topP: 0.5 })).toEqual([0, 1, 2, 3]);
    expect(allowed(equal, { temperature: 1, topP: 0.51 })).toEqual([0, 1, 2, 3, 4]);
    expect(allowed(equal, { temperature: 1, topK: 3 })).toEqual([0, 1, 2]);
    const long = new Float32Array(8192).fill(-2);
    expect(allowed(long, { temperature: 1, topP: 0.5 })).toEqual(Array.from({ length: 4096 }, (_, id) => id));
    expect(allowed(long, { temperature: 1, topK: 5000 })).toEqual(Array.from({ length: 5000 }, (_, id) => id));
  });

  test('the tiniest top_p, min_p 1 and typical_p leave the most likely token at least', () => {
    const logits = Float32Array.from([0, 5, 5, 4.9]);
    expect(allowed(logits, { temperature: 1, topP: 1e-9 })).toEqual([1]);
    expect(allowed(logits, { temperature: 1, minP: 1 })).toEqual([1, 2]);
    expect(allowed(logits, { temperature: 1, typicalP: 1e-9 })).toHaveLength(1);
  });

  test('the lowest finite float32, infinities and NaN beside ordinary logits', () => {
    const logits = Float32Array.from([-3.4028234663852886e38, 2, -Infinity, 1, Number.NaN, 0]);
    for (const wanted of [{ topK: 5 }, { topP: 0.9999999 }, { minP: 1e-9 }, { typicalP: 0.9999999 }]) {
      expect(allowed(logits, { temperature: 1, ...wanted })).toEqual([1, 3, 5]);
    }
  });
});
