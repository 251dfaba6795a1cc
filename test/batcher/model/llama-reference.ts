/**
 * LlamaReference: the decoders of the llama family in plain loops over the GGUF's own tensors, in double precision: what the prepared graph must
 * compute. It rotates the pairs as the rows lie in the file (neighbours in llama, the halves of a head in qwen), so that the graph's reordering is
 * checked too.
 */
import type { GgufFile } from '../../../batcher/model/gguf-file.ts';
import { tensorFloats } from '../../../batcher/model/matrix-form.ts';
import { Scratch } from '../../../batcher/model/scratch.ts';
import { TINY } from './tiny-llama.ts';

/** Logits of every position. */
export async function referenceLogits(
  file: GgufFile,
  ids: readonly number[],
  rope: { divisor?: number; factors?: readonly number[] } = {},
): Promise<Float64Array[]> {
  const { layers, width, heads, kvHeads, headDim } = TINY;
  const weights = await readAll(file);
  const get = (name: string): Float32Array => weights.get(name)!;
  const isPaired = file.metadata.get('general.architecture') === 'llama';
  const rows = ids.map(id => Float64Array.from(get('token_embd.weight').subarray(id * width, (id + 1) * width)));
  for (let layer = 0; layer < layers; layer++) {
    const at = (name: string): Float32Array => get(`blk.${layer}.${name}.weight`);
    const normal = rows.map(row => rmsNorm(row, at('attn_norm')));
    const projected = (name: string, row: Float64Array): Float64Array => {
      const out = product(at(name), row);
      for (const [i, bias] of (weights.get(`blk.${layer}.${name}.bias`) ?? []).entries()) out[i]! += bias;
      return out;
    };
    const rotated = (name: string): Float64Array[] =>
      normal.map((row, position) => {
        const out = projected(name, row);
        const headNorm = weights.get(`blk.${layer}.${name}_norm.weight`);
        if (headNorm !== undefined) {
          for (let i = 0; i < out.length; i += headDim) out.set(rmsNorm(out.subarray(i, i + headDim), headNorm), i);
        }
        return rotate(out, position, { ...rope, isPaired });
      });
    const [queries, keys, values] = [rotated('attn_q'), rotated('attn_k'), normal.map(row => projected('attn_v', row))];
    const mixed = queries.map((query, position) => {
      const out = new Float64Array(heads * headDim);
      for (let head = 0; head < heads; head++) {
        const shared = Math.floor(head / (heads / kvHeads)) * headDim;
        const scores = keys.slice(0, position + 1).map(key => {
          let sum = 0;
          for (let i = 0; i < headDim; i++) sum += query[head * headDim + i]! * key[shared + i]!;
          return sum / Math.sqrt(headDim);
        });
        const shares = softmax(scores);
        for (const [earlier, share] of shares.entries())
          for (let i = 0; i < headDim; i++) out[head * headDim + i]! += share * values[earlier]![shared + i]!;
      }
      return out;
    });
    for (const [i, row] of rows.entries()) addTo(row, product(at('attn_output'), mixed[i]!));
    for (const row of rows) {
      const inner = rmsNorm(row, at('ffn_norm'));
      const gate = product(at('ffn_gate'), inner);
      const up = product(at('ffn_up'), inner);
      addTo(
        row,
        product(
          at('ffn_down'),
          gate.map((value, i) => (value / (1 + Math.exp(-value))) * up[i]!),
        ),
      );
    }
  }
  const head = weights.get('output.weight') ?? get('token_embd.weight');
  return rows.map(row => product(head, rmsNorm(row, get('output_norm.weight'))));
}

async function readAll(file: GgufFile): Promise<Map<string, Float32Array>> {
  const weights = new Map<string, Float32Array>();
  for (const tensor of file.tensors.values()) {
    const bytes = new Uint8Array(tensor.byteLength);
    await file.readRows(tensor, 0, tensor.rows, bytes);
    weights.set(tensor.name, tensorFloats(tensor, bytes, new Scratch()));
  }
  return weights;
}

function product(matrix: Float32Array, row: Float64Array): Float64Array {
  return Float64Array.from({ length: matrix.length / row.length }, (_, n) => {
    let sum = 0;
    for (let k = 0; k < row.length; k++) sum += matrix[n * row.length + k]! * row[k]!;
    return sum;
  });
}

function rmsNorm(row: Float64Array, weight: Float32Array): Float64Array {
  const mean = row.reduce((sum, value) => sum + value * value, 0) / row.length;
  return row.map((value, i) => (value / Math.sqrt(mean + 1e-5)) * weight[i]!);
}

function rotate(
  row: Float64Array,
  position: number,
  { divisor = 1, factors, isPaired }: { divisor?: number; factors?: readonly number[]; isPaired: boolean },
): Float64Array {
  const { headDim } = TINY;
  const out = new Float64Array(row.length);
  for (let i = 0; i < row.length / 2; i++) {
    const pair = i % (headDim / 2);
    const a = isPaired ? 2 * i : Math.floor(i / (headDim / 2)) * headDim + pair;
    const b = isPaired ? a + 1 : a + headDim / 2;
    const angle = (position / divisor / (factors?.[pair] ?? 1)) * 10_000 ** ((-2 * pair) / headDim);
    out[a] = row[a]! * Math.cos(angle) - row[b]! * Math.sin(angle);
    out[b] = row[a]! * Math.sin(angle) + row[b]! * Math.cos(angle);
  }
  return out;
}

function softmax(scores: readonly number[]): number[] {
  const largest = Math.max(...scores);
  const powers = scores.map(score => Math.exp(score - largest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map(power => power / sum);
}

function addTo(row: Float64Array, other: Float64Array): void {
  for (let i = 0; i < row.length; i++) row[i]! += other[i]!;
}
