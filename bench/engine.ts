/**
 * Bench `engine`: decode and prefill of our engine and of llama.cpp on the same file with the same threads, in turn within one run, each
 * time in a fresh process. The two halves of a pair follow each other within seconds, and the ratio is taken within the pair, so that a
 * machine that grows slower or faster meanwhile does so for both.
 */
import { bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import type { EngineTask, EngineWork } from './engine-rate.ts';
import { benchModel, engineOptions } from './model.ts';
import { installLlamaCpp, measureLlamaCpp } from './peers/llama-cpp.ts';
import type { Bar, Table } from './report.ts';
import { type Spread, spreadOf, spreadText } from './spread.ts';

/** Ratio to llama.cpp that must be reached. */
const DECODE_BAR = 1.0;
const BATCHED_DECODE_BAR = 1.5;
const BATCHED_FROM = 8;
const PREFILL_BAR = 1.4;

export const engineBench = bench({
  settings: {
    ...commonSettings,
    repetitions: { kind: 'count', default: 3, min: 1, max: 100, help: 'times that each side is measured' },
    batches: { kind: 'counts', default: [1, 2, 4, 8, 16, 32], min: 1, max: 1024, help: 'sequences decoded together' },
    context: { kind: 'count', default: 128, min: 1, max: 1 << 20, help: 'tokens in each row before the first step' },
    steps: { kind: 'count', default: 64, min: 1, max: 4096, help: 'decode steps of a measurement' },
    prefill: { kind: 'count', default: 512, min: 2, max: 1 << 20, help: 'tokens of the prompt' },
  },
  async run({ settings, progress, children }) {
    const peer = await installLlamaCpp({ progress, children }, 'llama-batched-bench');
    const model = await benchModel(settings, progress);
    const program = new URL('./engine-rate.ts', import.meta.url).pathname;
    const ours = async (work: EngineWork) => {
      const rowCount = work.kind === 'decode' ? work.batch : 1;
      const task: EngineTask = { engine: engineOptions(model, { threads: settings.threads, rowCount }), work };
      return Number((await children.run(process.execPath, [program, JSON.stringify(task)])).stdout);
    };
    const theirs = (work: EngineWork) =>
      measureLlamaCpp(peer, { children }, { modelPath: model.ggufPath, threads: settings.threads, work });

    const rows: Row[] = [
      ...settings.batches.map(batch => ({
        label: String(batch),
        work: { kind: 'decode' as const, batch, contextTokens: settings.context, stepCount: settings.steps },
        pairs: [],
      })),
      { label: String(settings.prefill), work: { kind: 'prefill', promptTokens: settings.prefill }, pairs: [] },
    ];
    for (let repetition = 1; repetition <= settings.repetitions; repetition++) {
      for (const row of rows) {
        progress(`repetition ${repetition} of ${settings.repetitions}: ${nameOf(row.work)}`);
        row.pairs.push({ ours: await ours(row.work), theirs: await theirs(row.work) });
      }
    }
    const compared = rows.map(compare);
    const decode = compared.filter(row => row.work.kind === 'decode');
    const prefill = compared.filter(row => row.work.kind === 'prefill');
    return {
      title: `Engine beside llama.cpp on ${model.name}, ${settings.threads} threads each; median (minimum-maximum)`,
      versions: { ...model.versions, 'llama.cpp': `${peer.version}, ${peer.buildFlags.join(' ')}` },
      tables: [
        table(`Decode, aggregate tokens/s, from context ${settings.context}`, 'batch', decode),
        table('Prefill, tokens/s of one prompt', 'prompt tokens', prefill),
      ],
      figures: {
        rows: compared.map(({ work, ours: sluice, theirs: llamaCpp, ratio }) => ({
          ...work,
          unit: work.kind === 'decode' ? 'aggregate tokens/s' : 'tokens/s of one prompt',
          sluice,
          llamaCpp,
          ratio,
        })),
      },
      bars: compared.map(bar),
    };
  },
});

interface Row {
  /** Batch or prompt tokens. */
  label: string;
  work: EngineWork;
  pairs: { ours: number; theirs: number }[];
}

interface Compared extends Row {
  ours: Spread;
  theirs: Spread;
  /** Of the pairs' own ratios. */
  ratio: Spread;
}

function compare(row: Row): Compared {
  return {
    ...row,
    ours: spreadOf(row.pairs.map(pair => pair.ours)),
    theirs: spreadOf(row.pairs.map(pair => pair.theirs)),
    ratio: spreadOf(row.pairs.map(pair => pair.ours / pair.theirs)),
  };
}

function nameOf(work: EngineWork): string {
  return work.kind === 'decode' ? `decode at batch ${work.batch}` : `prefill of ${work.promptTokens}`;
}

function bar({ work, ratio }: Compared): Bar {
  const decodeLimit = (batch: number) => (batch >= BATCHED_FROM ? BATCHED_DECODE_BAR : DECODE_BAR);
  return {
    name: `${nameOf(work)} over llama.cpp`,
    value: ratio.median,
    relation: '>=',
    limit: work.kind === 'decode' ? decodeLimit(work.batch) : PREFILL_BAR,
  };
}

function table(title: string, label: string, rows: readonly Compared[]): Table {
  return {
    title,
    columns: [label, 'sluice', 'llama.cpp', 'ratio'],
    rows: rows.map(row => [row.label, spreadText(row.ours), spreadText(row.theirs), spreadText(row.ratio, 2)]),
  };
}
