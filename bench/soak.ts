/**
 * Bench `soak`: mixed traffic for a long time, a third of it cut by its clients; resident memory of every process must be flat once caches are warm.
 * `--plot` writes the memory over time as an SVG picture.
 */
import { writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { type BenchRun, bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import { mib, residentBytes } from './leftovers.ts';
import { type StreamOutcome, streamChat } from './load-client.ts';
import { type BenchModel, benchModel } from './model.ts';
import { passage, readText } from './passages.ts';
import { plotSvg, type Series } from './plot.ts';
import type { Findings } from './report.ts';
import type { SettingSpecs } from './settings.ts';
import { percentile } from './spread.ts';
import { startStack } from './stack.ts';
import { randomSource } from './token-source.ts';

/** Median of the last quarter over that of the second: the first is warm-up. */
const GROWTH_BAR = 1.05;
/** The same prompts again and again, so that what caches may hold is held after the warm-up. */
const PROMPT_COUNT = 60;
/** So little that answers, which the prefix cache keeps too, fill it during the warm-up. */
const KV_MEMORY = '320M';
const CUT_SHARE = 1 / 3;
const PARTS = ['gateway', 'batcher', 'redis'] as const;
type Part = (typeof PARTS)[number];

const SETTINGS = {
  ...commonSettings,
  minutes: { kind: 'count', default: 30, min: 1, max: 10_000, help: 'how long' },
  clients: { kind: 'count', default: 6, min: 1, max: 512, help: 'requests at a time' },
  'pace-ms': {
    kind: 'count',
    default: 4_000,
    min: 0,
    max: 600_000,
    help: 'least time from one request of a client to its next, so that the traffic is even however fast the machine is just then',
  },
  'sample-ms': { kind: 'count', default: 5_000, min: 100, max: 600_000, help: 'between two looks at the memory' },
  seed: { kind: 'count', default: 1, min: 1, max: 0x7fffffff, help: 'of lengths and cuts' },
  plot: { kind: 'text', default: '', help: 'file to write the picture to' },
} as const satisfies SettingSpecs;

export const soakBench = bench({
  settings: SETTINGS,
  async run(run) {
    const model = await benchModel(run.settings, run.progress);
    const measured = await measure(run, model);
    const { plot } = run.settings;
    if (plot !== '') await writeFile(plot, plotOf(measured));
    return findings(model, measured);
  },
});

interface Measured {
  outcomes: StreamOutcome[];
  /** Minutes from the start, and bytes of each process. */
  samples: { minutes: number; bytes: Record<Part, number> }[];
}

async function measure({ settings, progress, children }: BenchRun<typeof SETTINGS>, model: BenchModel): Promise<Measured> {
  const text = await readText();
  const batcherArguments = ['--kv-memory', KV_MEMORY];
  const stack = await startStack({ model, threads: settings.threads, batcherArguments, progress, children });
  const random = randomSource(settings.seed);
  const outcomes: StreamOutcome[] = [];
  const samples: Measured['samples'] = [];
  const startedAt = performance.now();
  const endAt = startedAt + settings.minutes * 60_000;
  const client = async () => {
    for (let nextAt = startedAt; performance.now() < endAt; nextAt = Math.max(nextAt + settings['pace-ms'], performance.now())) {
      await sleep(Math.max(0, nextAt - performance.now()));
      const leaving = new AbortController();
      const maxTokens = 8 + Math.floor(random() * 56);
      const lastChunk = random() < CUT_SHARE ? Math.floor(random() * maxTokens) : Number.POSITIVE_INFINITY;
      const early = lastChunk === 0 ? setTimeout(() => leaving.abort(), random() * 2_000) : undefined;
      const words = Math.floor(random() * PROMPT_COUNT);
      const outcome = await streamChat(stack.target, {
        body: {
          model: 'default',
          messages: [{ role: 'user', content: passage(text, words, 5 + 6 * words) }],
          max_tokens: maxTokens,
          ignore_eos: true,
          temperature: random() < 0.5 ? 0 : 0.9,
        },
        signal: leaving.signal,
        onChunk: count => {
          if (count >= lastChunk) leaving.abort();
        },
      });
      clearTimeout(early);
      for (const fault of outcome.faults) progress(`fault: ${fault}`);
      // Of the text only the count matters here, and half an hour of it would be memory of our own.
      outcomes.push({ ...outcome, text: '', choiceTexts: [], chunkTimes: [] });
    }
  };
  try {
    const load = Promise.all(Array.from({ length: settings.clients }, client));
    while (performance.now() < endAt) {
      await sleep(settings['sample-ms']);
      const pids = { gateway: stack.gatewayPid()!, batcher: stack.batcherPid(), redis: stack.redisPid()! };
      const [gateway, batcher, redis] = await Promise.all(PARTS.map(part => residentBytes(pids[part])));
      samples.push({ minutes: (performance.now() - startedAt) / 60_000, bytes: { gateway: gateway!, batcher: batcher!, redis: redis! } });
      if (samples.length % 12 === 0) progress(`${outcomes.length} requests in ${samples.at(-1)!.minutes.toFixed(0)} minutes`);
    }
    await load;
    return { outcomes, samples };
  } finally {
    await stack.close();
  }
}

function quarter(samples: Measured['samples'], index: 0 | 1 | 2 | 3, part: Part): number {
  const length = samples.length / 4;
  const taken = samples.slice(Math.floor(index * length), Math.max(Math.floor((index + 1) * length), Math.floor(index * length) + 1));
  return percentile(
    taken.map(sample => sample.bytes[part]),
    50,
  );
}

function plotOf({ samples }: Measured): string {
  const series: Series[] = PARTS.map(part => ({
    name: part,
    points: samples.map(({ minutes, bytes }) => [minutes, bytes[part] / 2 ** 20] as const),
  }));
  return plotSvg({ title: 'Resident memory under mixed traffic, a third of it cut', x: 'minutes', y: 'MiB', series });
}

function findings(model: BenchModel, measured: Measured): Findings {
  const { outcomes, samples } = measured;
  const faultCount = outcomes.flatMap(outcome => outcome.faults).length;
  const cutCount = outcomes.filter(outcome => outcome.isCut).length;
  const growth = (part: Part) => quarter(samples, 3, part) / quarter(samples, 1, part);
  return {
    title: `${outcomes.length} requests, ${cutCount} of them cut, in ${samples.at(-1)!.minutes.toFixed(1)} minutes on ${model.name}`,
    versions: model.versions,
    tables: [
      {
        title: 'Resident MiB, median of each quarter of the time',
        columns: ['', 'first', 'second', 'third', 'fourth', 'fourth over second'],
        rows: PARTS.map(part => [
          part,
          ...([0, 1, 2, 3] as const).map(index => mib(quarter(samples, index, part))),
          growth(part).toFixed(3),
        ]),
      },
    ],
    figures: { requestCount: outcomes.length, cutCount, faultCount, samples },
    bars: [
      { name: 'faults of streams that were not cut', value: faultCount, relation: '=', limit: 0 },
      ...PARTS.map(part => ({
        name: `resident memory of ${part}, last quarter over second`,
        value: growth(part),
        relation: '<=' as const,
        limit: GROWTH_BAR,
      })),
    ],
  };
}
