/**
 * Bench `quality`: that speed costs no quality. Perplexity of a fixed text with the weights as they are imported beside the same file in
 * float32; and agreement with an independent float32 implementation, step by step. What `--quality fast` costs stands beside what it gains.
 */
import { readFile } from 'node:fs/promises';
import type { KvType } from '../batcher/engine/engine.ts';
import { OrtEngine } from '../batcher/engine/ort-engine.ts';
import { engineOptions } from '../batcher/model/engine-options.ts';
import { defaultKvType } from '../batcher/model/prepare.ts';
import { loadTokenizer } from '../batcher/model/tokenizer.ts';
import { perplexity } from '../batcher/quality/perplexity.ts';
import { agreement, type ReferencePrompt } from './agreement.ts';
import { type BenchRun, bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import { type EngineWork, measureApart } from './engine-rate.ts';
import { type BenchModel, benchModel } from './model.ts';
import { readText } from './passages.ts';
import type { Bar } from './report.ts';
import { type Spread, spreadOf, spreadText } from './spread.ts';

const REFERENCE = new URL('../test/reference/smollm2-135m-q4_1.json', import.meta.url);
/** The file that the reference was computed from. */
const REFERENCE_MODEL = 'smollm2-135m-instruct';

const PERPLEXITY_BAR = 0.01;
const AGREEMENT_BAR = 0.95;
const LOGPROB_BAR = 0.15;

export const qualityBench = bench({
  settings: {
    ...commonSettings,
    tokens: { kind: 'count', default: 2048, min: 16, max: 1 << 20, help: 'tokens of the text' },
    repetitions: { kind: 'count', default: 3, min: 1, max: 100, help: 'times that each speed is measured' },
    batches: { kind: 'counts', default: [1, 8, 32], min: 1, max: 1024, help: 'sequences decoded together, for the speeds' },
    chunk: { kind: 'count', default: 128, min: 2, max: 4096, help: 'tokens of one prefill chunk' },
  },
  async run({ settings, progress, children }) {
    const imported = await benchModel({ ...settings, quality: 'exact' }, progress);
    const fast = await benchModel({ ...settings, quality: 'fast' }, progress);
    const float32 = await benchModel({ ...settings, weights: 'f32', kernels: 'stock' }, progress);
    const tokenIds = (await loadTokenizer(imported.directory)).encodePrompt(await readText()).slice(0, settings.tokens);
    if (tokenIds.length < settings.tokens) throw new Error(`the text has only ${tokenIds.length} tokens in this vocabulary`);
    const measure = async (model: BenchModel, kvType: KvType) => {
      const label = `${model.weightsText}, KV cache in ${kvType}`;
      const engine = new OrtEngine(engineOptions(model, { threads: settings.threads, rowCount: 1, kvType }));
      try {
        const startedAt = performance.now();
        const value = await perplexity(engine, {
          tokenIds,
          chunkTokens: settings.chunk,
          onChunk: done => progress(`perplexity, ${label}: ${done} of ${tokenIds.length} tokens`),
        });
        return { label, value, seconds: (performance.now() - startedAt) / 1000 };
      } finally {
        engine.close();
      }
    };
    const used = await measure(imported, defaultKvType(imported.manifest));
    const others = [];
    for (const kvType of imported.manifest.kvTypes) {
      if (kvType !== defaultKvType(imported.manifest)) others.push(await measure(imported, kvType));
    }
    const faster = await measure(fast, defaultKvType(fast.manifest));
    const full = await measure(float32, 'f32');
    const share = (value: number) => value / full.value - 1;
    const difference = share(used.value);
    const speeds = await measureSpeeds({ exact: imported, fast }, settings, { progress, children });
    const agreed = imported.name === REFERENCE_MODEL ? await measureAgreement(imported, settings.threads) : undefined;
    const bars: Bar[] = [
      { name: 'perplexity away from float32, as a share', value: Math.abs(difference), relation: '<=', limit: PERPLEXITY_BAR },
    ];
    if (agreed) {
      bars.push(
        { name: 'top-1 agreement with the reference', value: agreed.topTokenAgreement, relation: '>=', limit: AGREEMENT_BAR },
        {
          name: 'mean absolute difference of top-5 log-probabilities',
          value: agreed.meanAbsoluteLogprobDifference,
          relation: '<',
          limit: LOGPROB_BAR,
        },
      );
    }
    return {
      title: `Quality of ${imported.name} as imported, beside float32`,
      versions: imported.versions,
      tables: [
        {
          title: `Perplexity of ${tokenIds.length} tokens (bench/text/alice-chapter-1.txt)`,
          columns: ['weights', 'perplexity', 'difference', 'seconds'],
          rows: [
            ...[used, ...others, faster].map(({ label, value, seconds }) => [
              label,
              value.toFixed(4),
              `${(share(value) * 100).toFixed(2)} %`,
              seconds.toFixed(1),
            ]),
            [full.label, full.value.toFixed(4), '', full.seconds.toFixed(1)],
          ],
        },
        {
          title: 'The engine with --quality fast beside exact, aggregate tokens/s',
          columns: ['', 'exact', 'fast', 'ratio'],
          rows: speeds.map(({ name, exact, fast: fastRates, ratio }) => [
            name,
            spreadText(exact),
            spreadText(fastRates),
            spreadText(ratio, 2),
          ]),
        },
        ...(agreed
          ? [
              {
                title: 'Teacher-forced, beside the independent float32 reference',
                columns: ['', 'value'],
                rows: [
                  ['steps', String(agreed.stepCount)],
                  ['top-1 agreement', `${(agreed.topTokenAgreement * 100).toFixed(2)} %`],
                  ['mean |difference| of top-5 log-probabilities', agreed.meanAbsoluteLogprobDifference.toFixed(4)],
                ],
              },
            ]
          : []),
      ],
      figures: {
        perplexity: { imported: used.value, fast: faster.value, float32: full.value, difference },
        speeds,
        ...(agreed && { agreement: agreed }),
      },
      bars,
      ...(agreed ? {} : { notes: [`the reference is for ${REFERENCE_MODEL} only, so agreement was not measured`] }),
    };
  },
});

interface Speed {
  name: string;
  exact: Spread;
  fast: Spread;
  /** Of the repetitions' own. */
  ratio: Spread;
}

const SPEED_CONTEXT = 128;
const SPEED_STEPS = 64;
const SPEED_PREFILL = 512;

/** In turn, each in a process of its own. */
async function measureSpeeds(
  models: Record<'exact' | 'fast', BenchModel>,
  { threads, batches, repetitions }: { threads: number; batches: readonly number[]; repetitions: number },
  { progress, children }: Pick<BenchRun, 'progress' | 'children'>,
): Promise<Speed[]> {
  const works: { name: string; work: EngineWork }[] = [
    ...batches.map(batch => ({
      name: `decode, batch ${batch}, context ${SPEED_CONTEXT}`,
      work: { kind: 'decode' as const, batch, contextTokens: SPEED_CONTEXT, stepCount: SPEED_STEPS },
    })),
    { name: `prefill of ${SPEED_PREFILL}`, work: { kind: 'prefill' as const, promptTokens: SPEED_PREFILL } },
  ];
  const speeds: Speed[] = [];
  for (const { name, work } of works) {
    const rates = { exact: [] as number[], fast: [] as number[] };
    for (let repetition = 1; repetition <= repetitions; repetition++) {
      progress(`speed, ${name}: repetition ${repetition} of ${repetitions}`);
      for (const quality of ['exact', 'fast'] as const) {
        const rowCount = work.kind === 'decode' ? work.batch : 1;
        rates[quality].push(await measureApart({ engine: engineOptions(models[quality], { threads, rowCount }), work }, children));
      }
    }
    const ratio = spreadOf(rates.fast.map((rate, repetition) => rate / rates.exact[repetition]!));
    speeds.push({ name, exact: spreadOf(rates.exact), fast: spreadOf(rates.fast), ratio });
  }
  return speeds;
}

async function measureAgreement(model: BenchModel, threads: number) {
  const prompts = JSON.parse(await readFile(REFERENCE, 'utf8')) as ReferencePrompt[];
  const engine = new OrtEngine(engineOptions(model, { threads, rowCount: prompts.length }));
  try {
    return await agreement(engine, prompts);
  } finally {
    engine.close();
  }
}
