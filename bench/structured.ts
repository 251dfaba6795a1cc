/**
 * Bench `structured`: what holding answers to a structure, or to a call of a function, costs a decode step, beside the same steps of free answers, and
 * the time until a structure can be followed; then the hundred schemas at temperature 1, each answer checked by ajv.
 */

import { engineOptions } from '../batcher/model/engine-options.ts';
import { type BenchRun, bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import { runLoops } from './loop-runs.ts';
import type { LoopPlan, LoopTimes } from './loop-workload.ts';
import { type BenchModel, benchModel } from './model.ts';
import type { Bar, Findings } from './report.ts';
import type { SettingSpecs } from './settings.ts';
import { percentile } from './spread.ts';
import { startStack } from './stack.ts';
import { type CompileTime, compileTimes } from './structured/compile-times.ts';
import { loadSchemas, runSchemas, type SchemaOutcome } from './structured/schema-run.ts';

/** Of a step at this batch. */
const COST_BAR = 0.1;
const COST_BATCH = 8;
/** Below it drafts are verified, so a step is no plain decode. */
const MIN_BATCH = 5;
const STORE_BLOCKS = 8192;
const CONCURRENCY = 32;

const SETTINGS = {
  ...commonSettings,
  batches: { kind: 'counts', default: [COST_BATCH, 32], min: MIN_BATCH, max: 256, help: 'sequences decoded together' },
  steps: { kind: 'count', default: 200, min: 10, max: 4096, help: 'steps of each batch that count' },
  repetitions: { kind: 'count', default: 3, min: 1, max: 32, help: 'runs of each kind of answer, in turn' },
  seeds: { kind: 'count', default: 5, min: 0, max: 100, help: 'answers to each of the hundred schemas; 0 leaves them out' },
} as const satisfies SettingSpecs;

export const structuredBench = bench({
  settings: SETTINGS,
  async run(run) {
    const model = await benchModel(run.settings, run.progress);
    const costs = await measureCosts(run, model);
    run.progress('time until a schema can be followed');
    const compilation = await compileTimes(model.directory);
    const outcomes = run.settings.seeds === 0 ? [] : await runHundred(run, model);
    return findings(model, { costs, compilation, outcomes });
  },
});

type StructuredRun = BenchRun<typeof SETTINGS>;

/**
 * Many small objects: short texts, numbers and constants, so that most tokens are at a place where the structure matters; enough of them to fill every
 * step that is measured.
 */
const WORKLOAD = {
  type: 'array',
  minItems: 4_000,
  items: {
    type: 'object',
    properties: {
      name: { type: 'string', maxLength: 40 },
      kind: { enum: ['person', 'place', 'thing'] },
      count: { type: 'integer', minimum: 0, maximum: 9999 },
      note: { type: 'string' },
    },
    required: ['name', 'kind', 'count', 'note'],
    additionalProperties: false,
  },
};

/** What answers are held to. */
const FORMS = {
  schema: { structure: { kind: 'schema', param: 'bench', schema: WORKLOAD } },
  call: {
    calledTool: {
      type: 'function',
      function: { name: 'save_records', parameters: { type: 'object', properties: { records: WORKLOAD }, required: ['records'] } },
    },
  },
} as const satisfies Record<string, Pick<LoopPlan, 'structure' | 'calledTool'>>;
type Form = keyof typeof FORMS;
const FORM_WORDS: Record<Form, string> = { schema: 'a schema', call: 'a call of a function' };
const FORM_NAMES = Object.keys(FORMS) as Form[];

interface Cost {
  batch: number;
  form: Form;
  /** Medians of the repetitions, each of the median step. */
  freeMs: number;
  heldMs: number;
  /** What a step takes more than the same engine run alone; of steps held to the form less of free ones. */
  addedMs: number;
  share: number;
  /** Of each repetition. */
  shares: number[];
}

async function measureCosts({ settings, progress, children }: StructuredRun, model: BenchModel): Promise<Cost[]> {
  const plan = (batch: number, form: Form | 'free') => ({
    name: `batch ${batch}, ${form}: ${settings.steps} steps`,
    plan: {
      modelDirectory: model.directory,
      engine: { ...engineOptions(model, { threads: settings.threads, rowCount: batch }), storeBlocks: STORE_BLOCKS },
      batch,
      sampling: 'temperature' as const,
      promptWords: 40,
      stepCount: settings.steps,
      ...(form === 'free' ? {} : FORMS[form]),
    },
  });
  const kinds = ['free', ...FORM_NAMES] as const;
  const turns = settings.batches.flatMap(batch => Array<number>(settings.repetitions).fill(batch));
  const times = await runLoops(
    turns.flatMap(batch => kinds.map(kind => plan(batch, kind))),
    { progress, children },
  );
  const of = (batch: number, kind: (typeof kinds)[number]) =>
    turns.flatMap((turn, index) => (turn === batch ? times[index * kinds.length + kinds.indexOf(kind)]! : []));
  return settings.batches.flatMap(batch => FORM_NAMES.map(form => costOf({ batch, form }, of(batch, 'free'), of(batch, form))));
}

/** Runs that belong together have the same place in both lists. */
export function costOf(what: Pick<Cost, 'batch' | 'form'>, free: readonly LoopTimes[], held: readonly LoopTimes[]): Cost {
  const added = held.map((times, index) => overheadMs(times) - overheadMs(free[index]!));
  const freeSteps = free.map(({ step }) => median(step));
  const shares = added.map((ms, index) => ms / freeSteps[index]!);
  const heldMs = median(held.map(({ step }) => median(step)));
  return { ...what, freeMs: median(freeSteps), heldMs, addedMs: median(added), share: median(shares), shares };
}

function overheadMs({ step, engine }: LoopTimes): number {
  return median(step.map((ms, index) => ms - engine[index]!));
}

const median = (values: readonly number[]): number => percentile(values, 50);

async function runHundred({ settings, progress, children }: StructuredRun, model: BenchModel): Promise<SchemaOutcome[]> {
  const cases = await loadSchemas();
  progress(`${cases.length} schemas, ${settings.seeds} answers each`);
  const stack = await startStack({ model, threads: settings.threads, progress, children });
  try {
    const seeds = Array.from({ length: settings.seeds }, (_, index) => index + 1);
    const outcomes = await runSchemas(stack.target, { cases, seeds, concurrency: CONCURRENCY });
    for (const { name, seed, fault } of outcomes) if (fault !== undefined) progress(`${name}, seed ${seed}: ${fault}`);
    return outcomes;
  } finally {
    await stack.close();
  }
}

function findings(
  model: BenchModel,
  { costs, compilation, outcomes }: { costs: readonly Cost[]; compilation: readonly CompileTime[]; outcomes: readonly SchemaOutcome[] },
): Findings {
  const ms = (value: number) => value.toFixed(2);
  const percent = (value: number) => `${(value * 100).toFixed(1)} %`;
  const faultCount = outcomes.filter(({ fault }) => fault !== undefined).length;
  const woundUpCount = outcomes.filter(({ isWoundUp, fault }) => isWoundUp && fault === undefined).length;
  const refusedCount = outcomes.filter(({ status, fault }) => status === 400 && fault === undefined).length;
  return {
    title: `Structured answers on ${model.name}`,
    versions: model.versions,
    tables: [
      {
        title: 'Milliseconds of a decode step, p50',
        columns: ['batch', 'held to', 'free', 'held', 'added by it', 'share', 'of each repetition'],
        rows: costs.map(({ batch, form, freeMs, heldMs, addedMs, share, shares }) => [
          String(batch),
          FORM_WORDS[form],
          ms(freeMs),
          ms(heldMs),
          ms(addedMs),
          percent(share),
          shares.map(percent).join(', '),
        ]),
      },
      {
        title: 'Milliseconds until a schema can be followed, and for its first mask',
        columns: ['schema', 'compiled', 'first mask', 'XGrammar compiles in'],
        rows: compilation.map(one => [one.name, ms(one.compileMs), ms(one.firstMaskMs), ms(one.xgrammarMs)]),
      },
      ...(outcomes.length === 0
        ? []
        : [
            {
              title: 'A hundred schemas at temperature 1',
              columns: ['', 'answers'],
              rows: [
                ['valid', String(outcomes.length - faultCount - refusedCount)],
                ['of them brought to their end by max_tokens, and told so', String(woundUpCount)],
                ['refused with the place, as they must be', String(refusedCount)],
                ['otherwise', String(faultCount)],
                ['tokens', String(outcomes.reduce((sum, one) => sum + one.completionTokens, 0))],
              ],
            },
          ]),
    ],
    figures: {
      unit: 'ms',
      costs,
      compilation,
      answerCount: outcomes.length,
      refusedCount,
      woundUpCount,
      faults: outcomes.filter(one => one.fault !== undefined),
    },
    bars: [
      ...costs
        .filter(({ batch }) => batch === COST_BATCH)
        .map(
          ({ share, form }): Bar => ({
            name: `share of a step at batch ${COST_BATCH} that ${FORM_WORDS[form]} adds`,
            value: share,
            relation: '<=',
            limit: COST_BAR,
          }),
        ),
      {
        name: 'answers that are neither valid nor refused with their place',
        value: faultCount,
        relation: '=',
        limit: 0,
      },
    ],
    notes: [
      'added: the step as a whole less the same engine run with nothing beside it, of held answers less of free ones, medians of the repetitions; so masks that are made while the engine runs count as far as they hold it up',
      'XGrammar: the WebAssembly build, on the same schema; in one process, warm',
    ],
  };
}
