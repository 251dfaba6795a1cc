/**
 * Bench `bounds`: what bounds the engine on this host: the bytes that a step must read and the multiplications that it must do a second, beside what the
 * host can read and multiply at the most with as many threads (bounds/machine.c), in turn within one run.
 */
import { join } from 'node:path';
import { compileC, whyNoKernels } from '../batcher/engine/kernels/kernel-library.ts';
import { kvBytesPerToken } from '../batcher/engine/ort-engine.ts';
import { engineOptions } from '../batcher/model/engine-options.ts';
import { openGguf } from '../batcher/model/gguf-file.ts';
import { DATA_FILE, defaultKvType } from '../batcher/model/prepare.ts';
import { bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import { type EngineWork, measureApart } from './engine-rate.ts';
import { type BenchModel, benchModel } from './model.ts';
import type { Findings } from './report.ts';
import { type Spread, spreadOf, spreadText } from './spread.ts';
import { inTemporaryFolder } from './temporary-folder.ts';

const EMBEDDING = 'token_embd.weight';

export const boundsBench = bench({
  settings: {
    ...commonSettings,
    repetitions: { kind: 'count', default: 3, min: 1, max: 100, help: 'times that each is measured' },
    batches: { kind: 'counts', default: [1, 8, 32], min: 1, max: 1024, help: 'sequences decoded together' },
    contexts: { kind: 'counts', default: [128, 1024], min: 1, max: 1 << 20, help: 'tokens in each row before the first step' },
    steps: { kind: 'count', default: 64, min: 1, max: 4096, help: 'decode steps of a measurement' },
    prefill: { kind: 'counts', default: [512], min: 2, max: 1 << 20, help: 'tokens of the prompts' },
  },
  async run({ settings, progress, children }) {
    const reason = whyNoKernels();
    if (reason !== undefined) throw new Error(`bounds: ${reason}`);
    const model = await benchModel(settings, progress);
    const work = await workOf(model);
    const { batches, contexts, steps: stepCount, prefill, threads } = settings;
    const works: EngineWork[] = [
      ...contexts.flatMap(contextTokens => batches.map(batch => ({ kind: 'decode' as const, batch, contextTokens, stepCount }))),
      ...prefill.map(promptTokens => ({ kind: 'prefill' as const, promptTokens })),
    ];
    return await inTemporaryFolder(async folder => {
      const machineProgram = join(folder, 'machine');
      await compileC(['-O3', '-o', machineProgram, new URL('./bounds/machine.c', import.meta.url).pathname, '-lpthread']);
      const machines: Machine[] = [];
      const rates = works.map((): number[] => []);
      for (let repetition = 1; repetition <= settings.repetitions; repetition++) {
        progress(`repetition ${repetition} of ${settings.repetitions}`);
        machines.push(JSON.parse((await children.run(machineProgram, [String(threads)])).stdout) as Machine);
        for (const [index, each] of works.entries()) {
          const rowCount = each.kind === 'decode' ? each.batch : 1;
          rates[index]!.push(await measureApart({ engine: engineOptions(model, { threads, rowCount }), work: each }, children));
        }
      }
      return findings(model, { work, machines, measured: works.map((each, index) => ({ work: each, rates: rates[index]! })) });
    });
  },
});

interface Machine {
  /** Both a second. */
  readBytes: number;
  products: number;
}

/** Of the model. */
interface ModelWork {
  weightBytes: number;
  kvBytesPerToken: number;
  /** Multiplications by weights: of each token, and of each row of logits. */
  tokenProducts: number;
  logitProducts: number;
}

async function workOf({ ggufPath, manifest }: BenchModel): Promise<ModelWork> {
  await using file = await openGguf(ggufPath);
  let tokenProducts = 0;
  for (const { name, dimensionCount, rows, columns } of file.tensors.values())
    if (dimensionCount > 1 && name !== EMBEDDING && name !== 'output.weight') tokenProducts += rows * columns;
  const head = file.tensors.get('output.weight') ?? file.tensors.get(EMBEDDING)!;
  return {
    weightBytes: manifest.files.find(({ name }) => name === DATA_FILE)!.byteLength,
    kvBytesPerToken: kvBytesPerToken(manifest.shape, defaultKvType(manifest)),
    tokenProducts,
    logitProducts: head.rows * head.columns,
  };
}

interface Outcome {
  work: ModelWork;
  machines: readonly Machine[];
  measured: readonly { work: EngineWork; rates: readonly number[] }[];
}

function findings(model: BenchModel, { work, machines, measured }: Outcome): Findings {
  const read = spreadOf(machines.map(({ readBytes }) => readBytes / 1e9));
  const multiplied = spreadOf(machines.map(({ products }) => products / 1e9));
  const rows = measured.map(one => ({ ...needs(one.work, work), tokensPerSecond: spreadOf(one.rates), work: one.work }));
  const share = (part: Spread['median'], whole: Spread) => `${((100 * part) / whole.median).toFixed(0)} %`;
  return {
    title: `What bounds the engine on ${model.name}; median (minimum-maximum)`,
    versions: model.versions,
    tables: [
      {
        title: 'This host at the most, all threads together',
        columns: ['', 'a second'],
        rows: [
          ['GB read from memory', spreadText(read)],
          ['8-bit multiplications, in thousands of millions', spreadText(multiplied, 0)],
        ],
      },
      {
        title: 'The engine beside that',
        columns: ['', 'tokens/s', 'GB/s it must read', 'of the most', 'G multiplications/s', 'of the most'],
        rows: rows.map(row => {
          const perToken = row.tokensPerSecond.median / 1e9;
          return [
            row.name,
            spreadText(row.tokensPerSecond),
            (perToken * row.bytes).toFixed(1),
            share(perToken * row.bytes, read),
            (perToken * row.products).toFixed(0),
            share(perToken * row.products, multiplied),
          ];
        }),
      },
    ],
    figures: { work, read, multiplied, rows },
    bars: [],
    notes: [
      'tokens/s of decode are aggregate; read are weights once a step and each row’s keys and values; multiplications are those by weights, without attention',
    ],
  };
}

/** Of one token. */
function needs(work: EngineWork, model: ModelWork): { name: string; bytes: number; products: number } {
  if (work.kind === 'prefill') {
    const { promptTokens } = work;
    return {
      name: `prefill of ${promptTokens}`,
      bytes: (model.weightBytes + promptTokens * model.kvBytesPerToken) / promptTokens,
      products: model.tokenProducts + model.logitProducts / promptTokens,
    };
  }
  const { batch, contextTokens, stepCount } = work;
  return {
    name: `decode, batch ${batch}, context ${contextTokens}`,
    bytes: model.weightBytes / batch + (contextTokens + stepCount / 2) * model.kvBytesPerToken,
    products: model.tokenProducts + model.logitProducts,
  };
}
