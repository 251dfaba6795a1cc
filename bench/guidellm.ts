/**
 * Bench `guidellm`: the vLLM project's load generator guidellm, unchanged, against the whole path, on completions and on chats: what it measures,
 * and whether every request was answered with as many tokens as it asked for, counted by parts that are not ours where there are such.
 */
import { loadVocabulary } from '../batcher/model/prepare.ts';
import { type BenchRun, bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import { type BenchModel, benchModel } from './model.ts';
import { GUIDELLM_ROUTES, type Guidellm, type GuidellmRoute, installGuidellm } from './peers/guidellm.ts';
import { type Differences, differencesFrom, type GuidellmBenchmark, type Percentiles } from './peers/guidellm-report.ts';
import type { Bar, Findings } from './report.ts';
import type { SettingSpecs } from './settings.ts';
import { type Stack, startStack } from './stack.ts';
import { inTemporaryFolder } from './temporary-folder.ts';
import { writeTokenizerFolder } from './tokenizer-folder.ts';

const SETTINGS = {
  ...commonSettings,
  streams: { kind: 'counts', default: [1, 8], min: 1, max: 256, help: 'requests under way at once; one benchmark for each' },
  requests: { kind: 'count', default: 32, min: 1, max: 100_000, help: 'requests of each benchmark; prompts repeat after 1000 of all' },
  'prompt-tokens': { kind: 'count', default: 64, min: 1, max: 100_000, help: 'tokens of a prompt, as guidellm is asked to make it' },
  'output-tokens': { kind: 'count', default: 32, min: 2, max: 100_000, help: 'tokens that each request generates' },
} as const satisfies SettingSpecs;

type GuidellmRun = BenchRun<typeof SETTINGS>;

interface Measured {
  route: GuidellmRoute;
  benchmarks: (GuidellmBenchmark & { differences: Differences })[];
  /** By the batcher's own counter, of all benchmarks of the route, guidellm's probes of one token left out. */
  generatedTokens: number;
}

export const guidellmBench = bench({
  settings: SETTINGS,
  async run(run) {
    const model = await benchModel(run.settings, run.progress);
    const guidellm = await installGuidellm(run);
    return inTemporaryFolder(async tokenizerFolder => {
      await writeTokenizerFolder(await loadVocabulary(model.directory), {
        folder: tokenizerFolder,
        contextTokens: model.manifest.shape.contextTokens,
      });
      const measured: Measured[] = [];
      await using stack = await startStack({ ...run, model, threads: run.settings.threads });
      for (const route of GUIDELLM_ROUTES) measured.push(await measure(run, { model, guidellm, tokenizerFolder, stack, route }));
      return findings(run, { model, guidellm, measured });
    });
  },
});

interface Parts {
  model: BenchModel;
  guidellm: Guidellm;
  tokenizerFolder: string;
  stack: Stack;
  route: GuidellmRoute;
}

async function measure({ settings, progress }: GuidellmRun, { model, guidellm, tokenizerFolder, stack, route }: Parts): Promise<Measured> {
  const { streams, requests: requestCount, 'prompt-tokens': promptTokens, 'output-tokens': outputTokens } = settings;
  progress(`guidellm on ${route}: ${streams.join(', ')} at once`);
  const before = await stack.metrics();
  const found = await guidellm.measure(
    { ...stack.target, model: model.name, tokenizerFolder },
    { route, streamCounts: streams, requestCount, promptTokens, outputTokens },
  );
  const after = await stack.metrics();
  const rise = (name: string) => after.total(name) - before.total(name);
  // Before each benchmark it asks for one token from each of its processes, to see that the server is there.
  const probeCount = rise('sluice_e2e_request_latency_seconds_count') - streams.length * requestCount;
  for (const error of new Set(found.flatMap(({ errors }) => errors))) progress(`guidellm's error: ${error}`);
  const benchmarks: Measured['benchmarks'] = [];
  for (const benchmark of found) {
    const prompts = benchmark.requests.map(({ prompt }) => prompt);
    const counted = await guidellm.countTokens(prompts, { tokenizerFolder, route });
    benchmarks.push({ ...benchmark, differences: differencesFrom({ requestCount, outputTokens, promptTokens: counted }, benchmark) });
  }
  return { route, benchmarks, generatedTokens: rise('sluice_generation_tokens_total') - probeCount };
}

function findings(
  { settings }: GuidellmRun,
  { model, guidellm, measured }: { model: BenchModel; guidellm: Guidellm; measured: readonly Measured[] },
): Findings {
  const each = measured.flatMap(({ route, benchmarks }) =>
    benchmarks.map(benchmark => ({ ...benchmark, label: `${route}, ${benchmark.streamCount} at once` })),
  );
  const sum = (of: (benchmark: (typeof each)[number]) => number) => each.reduce((total, benchmark) => total + of(benchmark), 0);
  const asked = measured.length * settings.streams.length * settings.requests * settings['output-tokens'];
  const none = (name: string, value: number): Bar => ({ name, value, relation: '=', limit: 0 });
  return {
    title: `guidellm against the whole path on ${model.name}: ${settings.requests} requests of ${settings['prompt-tokens']} + ${settings['output-tokens']} tokens each time`,
    versions: { ...model.versions, guidellm: guidellm.version },
    tables: [
      {
        title: 'Requests, and those whose tokens are not as many as they must be',
        columns: ['', 'completed', 'errored', 'missing', 'output tokens differ', 'prompt tokens differ'],
        rows: each.map(({ label, completedCount, erroredCount, differences }) => [
          label,
          ...[completedCount, erroredCount, differences.missingCount, differences.outputTokensCount, differences.promptTokensCount].map(
            String,
          ),
        ]),
      },
      {
        title: 'Milliseconds, as guidellm reports them: p50 / p99',
        columns: ['', 'TTFT', 'ITL', 'TPOT'],
        rows: each.map(({ label, ttftMs, interTokenMs, perOutputTokenMs }) => [
          label,
          percentilesText(ttftMs, 0),
          percentilesText(interTokenMs, 1),
          percentilesText(perOutputTokenMs, 1),
        ]),
      },
      {
        title: 'Output tokens/s, as guidellm reports them',
        columns: ['', 'per request, p50', 'aggregate of all'],
        rows: each.map(benchmark => [
          benchmark.label,
          benchmark.perRequestOutputTokensPerSecondP50.toFixed(1),
          benchmark.aggregateOutputTokensPerSecond.toFixed(1),
        ]),
      },
    ],
    figures: Object.fromEntries(
      measured.map(({ route, benchmarks, generatedTokens }) => [
        route,
        { generatedTokens, benchmarks: benchmarks.map(({ requests: _, ...figures }) => figures) },
      ]),
    ),
    bars: [
      none(
        'requests that errored',
        sum(({ erroredCount }) => erroredCount),
      ),
      none(
        'requests that neither completed nor errored',
        sum(({ differences }) => differences.missingCount),
      ),
      none(
        'requests with other than the wanted output tokens',
        sum(({ differences }) => differences.outputTokensCount),
      ),
      none(
        "requests with other prompt tokens than Hugging Face's tokenizer counts",
        sum(({ differences }) => differences.promptTokensCount),
      ),
      {
        name: 'tokens that the batcher counted for these requests',
        value: measured.reduce((total, of) => total + of.generatedTokens, 0),
        relation: '=',
        limit: asked,
      },
    ],
    notes: [
      "ITL and TPOT are each request's time from its first token to its last, over its tokens, for ITL one less; its own tokens/s include the time to the first",
      "guidellm's processes, one for each request under way and at most ten, share the machine with the engine",
    ],
  };
}

function percentilesText({ p50, p99 }: Percentiles, digits: number): string {
  return `${p50.toFixed(digits)} / ${p99.toFixed(digits)}`;
}
