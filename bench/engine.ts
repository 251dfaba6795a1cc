/**
 * Bench `engine`: decode and prefill of our engine and of its peers on the same file with the same threads, in turn within one run, each
 * time in a fresh process. The sides of a round follow each other within seconds, and the ratio is taken within the round, so that a
 * machine that grows slower or faster meanwhile does so for all. A peer that cannot run is named with the reason.
 */
import { writeFile } from 'node:fs/promises';
import { engineOptions } from '../batcher/model/engine-options.ts';
import { bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import { leastRatio } from './engine-bars.ts';
import { ENGINE_PEERS, type EnginePeer, namedEnginePeers } from './engine-peer.ts';
import { type EngineWork, measureApart } from './engine-rate.ts';
import { benchModel } from './model.ts';
import { plotSvg } from './plot.ts';
import type { Bar, Table } from './report.ts';
import { type Spread, spreadOf, spreadText } from './spread.ts';

export const engineBench = bench({
  settings: {
    ...commonSettings,
    repetitions: { kind: 'count', default: 3, min: 1, max: 100, help: 'times that each side is measured' },
    peers: { kind: 'text', default: 'llama.cpp', help: `beside ours: any of ${ENGINE_PEERS.join(',')}, or all` },
    batches: { kind: 'counts', default: [1, 2, 4, 8, 16, 32], min: 1, max: 1024, help: 'sequences decoded together' },
    context: { kind: 'count', default: 128, min: 1, max: 1 << 20, help: 'tokens in each row before the first step' },
    steps: { kind: 'count', default: 64, min: 0, max: 4096, help: 'decode steps of a measurement; 0 leaves decode out' },
    prefill: { kind: 'counts', default: [512], min: 0, max: 1 << 20, help: 'tokens of the prompts; 0 leaves prefill out' },
    plot: { kind: 'text', default: '', help: 'file to draw decode by batch into, as SVG' },
  },
  async run({ settings, progress, children }) {
    const wanted = namedEnginePeers(settings.peers);
    const model = await benchModel(settings, progress);
    const peers = new Map<string, EnginePeer>();
    const notes: string[] = [];
    for (const { name, install } of wanted) {
      try {
        peers.set(name, await install({ model, threads: settings.threads }, { progress, children }));
      } catch (thrown) {
        notes.push(`${name} does not run here: ${reasonOf(thrown)}`);
      }
    }
    const ours = async (work: EngineWork) => {
      const rowCount = work.kind === 'decode' ? work.batch : 1;
      return await measureApart({ engine: engineOptions(model, { threads: settings.threads, rowCount }), work }, children);
    };

    const rows = worksOf(settings).map((work): Row => ({ work, ours: [], theirs: new Map() }));
    for (let repetition = 1; repetition <= settings.repetitions; repetition++) {
      for (const row of rows) {
        progress(`repetition ${repetition} of ${settings.repetitions}: ${nameOf(row.work)}`);
        row.ours.push(await ours(row.work));
        for (const [name, peer] of peers) {
          try {
            row.theirs.set(name, [...(row.theirs.get(name) ?? []), await peer.measure(row.work)]);
          } catch (thrown) {
            notes.push(`${name}, ${nameOf(row.work)}: ${reasonOf(thrown)}`);
          }
        }
      }
    }
    const compared = rows.map(row =>
      compare(
        row,
        wanted.map(({ name }) => name),
      ),
    );
    if (settings.plot !== '' && settings.steps > 0) await writeFile(settings.plot, plotOf(compared, settings));
    const ofKind = (kind: EngineWork['kind']) => compared.filter(row => row.work.kind === kind);
    const tables = [
      table(`Decode, aggregate tokens/s, from context ${settings.context}`, 'batch', ofKind('decode')),
      table('Prefill, tokens/s of one prompt', 'prompt tokens', ofKind('prefill')),
    ];
    return {
      title: `Engine on ${model.name}, ${settings.threads} threads each; median (minimum-maximum)`,
      versions: { ...model.versions, ...Object.fromEntries([...peers].map(([name, { version }]) => [name, version])) },
      tables: tables.filter(({ rows }) => rows.length > 0),
      figures: {
        rows: compared.map(({ work, sluice, peers }) => ({
          ...work,
          unit: work.kind === 'decode' ? 'aggregate tokens/s' : 'tokens/s of one prompt',
          sluice,
          peers,
        })),
      },
      bars: compared.flatMap(barsOf),
      notes,
    };
  },
});

interface Row {
  work: EngineWork;
  ours: number[];
  /** By peer; one that failed has fewer. */
  theirs: Map<string, number[]>;
}

interface Compared {
  work: EngineWork;
  sluice: Spread;
  /** Absent where the peer did not run; the ratios are of the rounds. */
  peers: { name: string; theirs?: Spread; ratio?: Spread }[];
}

function worksOf(settings: { batches: readonly number[]; context: number; steps: number; prefill: readonly number[] }): EngineWork[] {
  const { context: contextTokens, steps: stepCount } = settings;
  const decodes = stepCount === 0 ? [] : settings.batches.map(batch => ({ kind: 'decode' as const, batch, contextTokens, stepCount }));
  const prefills = settings.prefill.filter(promptTokens => promptTokens > 1);
  return [...decodes, ...prefills.map(promptTokens => ({ kind: 'prefill' as const, promptTokens }))];
}

function compare({ work, ours, theirs }: Row, names: readonly string[]): Compared {
  const peers = names.map(name => {
    const rates = theirs.get(name);
    // A round that one side missed would pair the others wrongly.
    if (rates?.length !== ours.length) return { name };
    return { name, theirs: spreadOf(rates), ratio: spreadOf(rates.map((rate, round) => ours[round]! / rate)) };
  });
  return { work, sluice: spreadOf(ours), peers };
}

function nameOf(work: EngineWork): string {
  return work.kind === 'decode' ? `decode at batch ${work.batch}, context ${work.contextTokens}` : `prefill of ${work.promptTokens}`;
}

function barsOf({ work, peers }: Compared): Bar[] {
  return peers.flatMap(({ name, ratio }) =>
    ratio === undefined
      ? []
      : [{ name: `${nameOf(work)} over ${name}`, value: ratio.median, relation: '>=' as const, limit: leastRatio(name, work) }],
  );
}

function table(title: string, label: string, rows: readonly Compared[]): Table {
  return {
    title,
    columns: [label, 'engine', 'tokens/s', 'sluice over it'],
    rows: rows.flatMap(({ work, sluice, peers }) => [
      [String(work.kind === 'decode' ? work.batch : work.promptTokens), 'sluice', spreadText(sluice), ''],
      ...peers.map(({ name, theirs, ratio }) => ['', name, theirs ? spreadText(theirs) : '-', ratio ? spreadText(ratio, 2) : '-']),
    ]),
  };
}

function plotOf(rows: readonly Compared[], { context, threads }: { context: number; threads: number }): string {
  const decodes = rows.flatMap(row => (row.work.kind === 'decode' ? [{ ...row, batch: row.work.batch }] : []));
  const points = (rateOf: (row: Compared) => Spread | undefined) =>
    decodes
      .flatMap(row => {
        const rate = rateOf(row)?.median;
        return rate === undefined ? [] : [[row.batch, rate] as const];
      })
      .sort(([a], [b]) => a - b);
  const peers = decodes[0]!.peers.map(({ name }, index) => ({ name, points: points(row => row.peers[index]?.theirs) }));
  return plotSvg({
    title: `Decode from context ${context}, ${threads} threads each`,
    x: 'batch',
    y: 'aggregate tokens/s',
    series: [{ name: 'sluice', points: points(row => row.sluice) }, ...peers.filter(({ points }) => points.length > 0)],
  });
}

/** The last line that says something: of a failed program, what it died of. */
function reasonOf(thrown: unknown): string {
  const lines = (thrown instanceof Error ? thrown.message : String(thrown)).split('\n').filter(line => line.trim() !== '');
  return (lines.findLast(line => /error/i.test(line)) ?? lines.at(-1) ?? 'no reason given').trim().slice(0, 300);
}
