/**
 * Bench `serve`: simultaneous streams through gateway, Redis and batcher, beside the engine alone given the same work in the same run.
 * Two ratios are judged. Whole run: completion tokens over wall time, prefill and all, on both sides. All running: the rate while every
 * stream is between its first and last token, beside the engine's decode at that batch.
 */

import { engineOptions } from '../batcher/model/engine-options.ts';
import { type BenchRun, bench } from './bench.ts';
import { burst, faultsOf } from './burst.ts';
import { commonSettings } from './common-settings.ts';
import type { WorkloadPlan, WorkloadTimes } from './engine-workload.ts';
import { type BenchModel, benchModel } from './model.ts';
import { passage, readText } from './passages.ts';
import type { Findings } from './report.ts';
import type { SettingSpecs } from './settings.ts';
import { type Spread, spreadOf, spreadText } from './spread.ts';
import { startStack } from './stack.ts';
import { type StreamFigures, streamFigures } from './stream-figures.ts';

const SHARE_OF_ENGINE_BAR = 0.8;
const WARM_UP_TOKENS = 4;

const SETTINGS = {
  ...commonSettings,
  repetitions: { kind: 'count', default: 3, min: 1, max: 100, help: 'times that each side is measured' },
  streams: { kind: 'count', default: 32, min: 1, max: 32, help: 'simultaneous requests' },
  'prompt-words': { kind: 'count', default: 70, min: 1, max: 4000, help: 'words of a prompt; 70 are about 120 tokens with the template' },
  'max-tokens': { kind: 'count', default: 160, min: 2, max: 4096, help: 'tokens that each request generates' },
} as const satisfies SettingSpecs;

export const serveBench = bench({
  settings: SETTINGS,
  async run(run) {
    const model = await benchModel(run.settings, run.progress);
    const measured = await measure(run, model);
    return findings(model, run.settings.streams, measured);
  },
});

type ServeRun = BenchRun<typeof SETTINGS>;

interface Measured {
  /** One entry a repetition in each. */
  served: StreamFigures[];
  alone: WorkloadTimes[];
  /** Of streams, all repetitions. */
  faults: string[];
}

async function measure({ settings, progress, children }: ServeRun, model: BenchModel): Promise<Measured> {
  const measured: Measured = { served: [], alone: [], faults: [] };
  const text = await readText();
  const stack = await startStack({ model, threads: settings.threads, progress, children });
  const program = new URL('./engine-workload.ts', import.meta.url).pathname;
  try {
    await burst(stack.target, settings.streams, { content: index => passage(text, index, 1), maxTokens: WARM_UP_TOKENS });
    for (let repetition = 1; repetition <= settings.repetitions; repetition++) {
      progress(`repetition ${repetition} of ${settings.repetitions}: ${settings.streams} streams`);
      const content = (index: number) => passage(text, repetition * settings.streams + index, settings['prompt-words']);
      const outcomes = await burst(stack.target, settings.streams, { content, maxTokens: settings['max-tokens'] });
      const faults = outcomes.flatMap(outcome => faultsOf(outcome, settings['max-tokens']));
      for (const fault of new Set(faults)) progress(`fault: ${fault}`);
      measured.faults.push(...faults);
      const good = outcomes.filter(outcome => faultsOf(outcome, settings['max-tokens']).length === 0);
      if (good.length === 0) throw new Error('no stream ended well');
      measured.served.push(streamFigures(good));
      progress(`repetition ${repetition} of ${settings.repetitions}: the engine alone`);
      const plan: WorkloadPlan = {
        engine: engineOptions(model, { threads: settings.threads, rowCount: good.length }),
        requests: good.map(({ usage }) => ({ promptTokens: usage!.promptTokens, cachedTokens: usage!.cachedTokens })),
        completionTokens: settings['max-tokens'],
      };
      measured.alone.push(JSON.parse((await children.run(process.execPath, [program, JSON.stringify(plan)])).stdout) as WorkloadTimes);
    }
  } finally {
    await stack.close();
  }
  return measured;
}

interface Share {
  wholePath: Spread;
  engine: Spread;
  /** Of the repetitions' own shares. */
  share: Spread;
}

function findings(model: BenchModel, streamCount: number, { served, alone, faults }: Measured): Findings {
  const shareOf = (mine: (figures: StreamFigures) => number, engine: (times: WorkloadTimes) => number): Share => ({
    wholePath: spreadOf(served.map(mine)),
    engine: spreadOf(alone.map(engine)),
    share: spreadOf(served.map((figures, repetition) => mine(figures) / engine(alone[repetition]!))),
  });
  const wholeRun = shareOf(
    figures => figures.aggregateTokensPerSecond,
    times => times.aggregateTokensPerSecond,
  );
  // Zero, and so a failed bar, when the streams never ran all at once.
  const allRunning = shareOf(
    figures => figures.allRunningAggregateTokensPerSecond ?? 0,
    times => times.decodeAggregateTokensPerSecond,
  );
  const over = (figure: (figures: StreamFigures) => number) => spreadOf(served.map(figure));
  const client = {
    perRequestTokensPerSecondP50: over(figures => figures.perRequestTokensPerSecondP50),
    ttftMsP50: over(figures => figures.ttftMsP50),
    ttftMsP99: over(figures => figures.ttftMsP99),
    interTokenMsP50: over(figures => figures.interTokenMsP50),
    interTokenMsP99: over(figures => figures.interTokenMsP99),
  };
  const shareRow = (label: string, { wholePath, engine, share }: Share) => [
    label,
    spreadText(wholePath),
    spreadText(engine),
    spreadText(share, 2),
  ];
  return {
    title: `${streamCount} simultaneous streams through the whole path on ${model.name}; median (minimum-maximum)`,
    versions: model.versions,
    tables: [
      {
        title: 'Aggregate tokens/s of all streams together',
        columns: ['', 'whole path', 'engine alone', 'share'],
        rows: [shareRow('whole run, prefill included', wholeRun), shareRow('while all streams run', allRunning)],
      },
      {
        title: 'One client',
        columns: ['', 'value'],
        rows: [
          ['per-request tokens/s, p50', spreadText(client.perRequestTokensPerSecondP50)],
          ['TTFT ms, p50', spreadText(client.ttftMsP50, 0)],
          ['TTFT ms, p99', spreadText(client.ttftMsP99, 0)],
          ['inter-token ms, p50', spreadText(client.interTokenMsP50)],
          ['inter-token ms, p99', spreadText(client.interTokenMsP99)],
        ],
      },
    ],
    figures: {
      wholeRun: { unit: 'aggregate tokens/s', ...wholeRun },
      allRunning: { unit: 'aggregate tokens/s', ...allRunning },
      ...client,
      streamFaultCount: faults.length,
      promptTokensPerRequest: over(figures => figures.promptTokens / figures.streamCount),
      cachedTokensPerRequest: over(figures => figures.cachedTokens / figures.streamCount),
    },
    bars: [
      { name: 'faults of streams (one finish_reason, one [DONE], full length)', value: faults.length, relation: '=', limit: 0 },
      {
        name: 'aggregate of the whole run as a share of the engine',
        value: wholeRun.share.median,
        relation: '>=',
        limit: SHARE_OF_ENGINE_BAR,
      },
      {
        name: 'aggregate while all run as a share of the engine',
        value: allRunning.share.median,
        relation: '>=',
        limit: SHARE_OF_ENGINE_BAR,
      },
    ],
    notes: [
      'the engine alone gets the same prompt lengths, less what the prefix cache gave: one prefill each, then all decode together; random tokens, no sampling',
    ],
  };
}
