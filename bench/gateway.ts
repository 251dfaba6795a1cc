/**
 * Bench `gateway`: what the gateway itself costs, on raw workerd with real Redis and queue, while the batcher is replaced by one that computes
 * nothing; in turn with Portkey's gateway and LiteLLM's proxy, each before an upstream that computes nothing. One process is each gateway;
 * all share the machine with the load client.
 */
import { join } from 'node:path';
import { type BenchRun, bench } from './bench.ts';
import { firstTokenMs, type Held, held, type Rate, refusals, streams, tokens } from './gateway-load.ts';
import { type GatewaySide, type Peer, startPeer, startSluice, startUpstream, upstreamSide } from './gateway-side.ts';
import { installLitellm } from './peers/litellm.ts';
import { installPortkey } from './peers/portkey.ts';
import type { Findings } from './report.ts';
import { type SettingSpecs, UsageError } from './settings.ts';
import { percentile, type Spread, spreadOf, spreadText } from './spread.ts';

const FIRST_TOKEN_MS_BAR = 6;
const STREAMS_BAR = 500;
const TOKENS_BAR = 25_000;
const REFUSALS_BAR = 2_000;

const SETTINGS = {
  repetitions: { kind: 'count', default: 3, min: 1, max: 100, help: 'times that each side is measured' },
  seconds: { kind: 'count', default: 3, min: 1, max: 600, help: 'of each load in each repetition' },
  requests: { kind: 'count', default: 200, min: 10, max: 100_000, help: 'one after the other, for the time to first token' },
  clients: { kind: 'count', default: 64, min: 1, max: 1024, help: 'connections for one-token streams and refusals' },
  streams: { kind: 'count', default: 256, min: 1, max: 4096, help: 'simultaneous streams for relayed tokens' },
  tokens: { kind: 'count', default: 500, min: 1, max: 10_000, help: 'of each of those streams' },
  open: { kind: 'count', default: 500, min: 1, max: 4000, help: 'streams that are held open' },
  hold: { kind: 'count', default: 60, min: 0, max: 86_400, help: 'seconds for which they are; 0 leaves that out' },
  peers: { kind: 'text', default: 'portkey,litellm', help: 'measured beside ours; none for none' },
  against: { kind: 'text', default: '', help: 'folder of another checkout, whose gateway is measured too' },
} as const satisfies SettingSpecs;

const PEERS: Record<string, (run: Pick<BenchRun, 'progress' | 'children'>) => Promise<Peer>> = {
  portkey: installPortkey,
  litellm: installLitellm,
};

const UNPACED = 'as fast as they come';
const PACE_MS = 10;
const WARM_UP_COUNT = 50;
/** Until the runtime has compiled what is called often. */
const WARM_UP_S = 4;

type GatewayRun = BenchRun<typeof SETTINGS>;

/** One entry a repetition in each. */
interface Measured {
  firstTokenMsP50: number[];
  firstTokenMsP99: number[];
  streams: Rate[];
  tokens: Rate[];
  /** Each token in a step of its own, one every 10 ms. */
  pacedTokens: Rate[];
  refusals: Map<string, Rate[]>;
  faults: string[];
}

export const gatewayBench = bench({
  settings: SETTINGS,
  async run(run) {
    const { settings, progress } = run;
    const { sides, versions } = await startSides(run);
    const all = new Map<string, Measured>(sides.map(side => [side.name, nothingMeasured()]));
    for (const side of sides) {
      progress(`${side.name}: warm-up`);
      await firstTokenMs(side, WARM_UP_COUNT);
      await streams(side, { clientCount: settings.clients, seconds: WARM_UP_S });
    }
    // Before the loads, after which memory that they have taken would be used again.
    let open: Held | undefined;
    if (settings.hold > 0) {
      progress(`${settings.open} open streams for ${settings.hold} s`);
      open = await held(sides[0]!, { openCount: settings.open, seconds: settings.hold });
    }
    for (let repetition = 1; repetition <= settings.repetitions; repetition++) {
      for (const side of sides) {
        progress(`repetition ${repetition} of ${settings.repetitions}: ${side.name}`);
        await measure(side, all.get(side.name)!, run);
      }
    }
    for (const [name, { faults }] of all) for (const fault of new Set(faults)) progress(`fault of ${name}: ${fault}`);
    for (const fault of new Set(open?.faults)) progress(`fault of an open stream: ${fault}`);
    return findings(all, open, versions);
  },
});

async function startSides(run: GatewayRun): Promise<{ sides: GatewaySide[]; versions: Record<string, string> }> {
  const { settings, progress } = run;
  const names = settings.peers === 'none' ? [] : settings.peers.split(',');
  for (const name of names) if (!Object.hasOwn(PEERS, name)) throw new UsageError(`--peers takes ${Object.keys(PEERS)}, not '${name}'`);
  const peers: Peer[] = [];
  for (const name of names) peers.push(await PEERS[name]!(run));
  const sides = [await startSluice(join(import.meta.dirname, '..'), run)];
  if (settings.against !== '') sides.push(await startSluice(settings.against, run, 'Sluice before'));
  if (peers.length > 0) {
    const upstreamPort = await startUpstream(run);
    for (const peer of peers) {
      progress(`${peer.name}: starting`);
      sides.push(await startPeer(peer, upstreamPort, run));
    }
    sides.push(upstreamSide(upstreamPort));
  }
  return { sides, versions: { node: process.versions.node, ...Object.fromEntries(peers.map(peer => [peer.name, peer.version])) } };
}

function nothingMeasured(): Measured {
  return { firstTokenMsP50: [], firstTokenMsP99: [], streams: [], tokens: [], pacedTokens: [], refusals: new Map(), faults: [] };
}

async function measure(side: GatewaySide, into: Measured, { settings }: GatewayRun): Promise<void> {
  const { seconds, clients: clientCount } = settings;
  const first = await firstTokenMs(side, settings.requests);
  into.firstTokenMsP50.push(first.p50);
  into.firstTokenMsP99.push(first.p99);
  into.faults.push(...first.faults);
  const keep = (list: Rate[], rate: Rate) => {
    list.push(rate);
    into.faults.push(...rate.faults);
  };
  keep(into.streams, await streams(side, { clientCount, seconds }));
  const load = { clientCount: settings.streams, seconds, tokenCount: settings.tokens };
  keep(into.tokens, await tokens(side, load));
  // The upstream of the peers has no pace.
  if (side.name.startsWith('Sluice')) keep(into.pacedTokens, await tokens(side, { ...load, paceMs: PACE_MS }));
  for (const refusal of side.refusals) {
    const list = into.refusals.get(refusal.name) ?? [];
    into.refusals.set(refusal.name, list);
    keep(list, await refusals(side, refusal, { clientCount, seconds }));
  }
}

function findings(all: ReadonlyMap<string, Measured>, open: Held | undefined, versions: Record<string, string>): Findings {
  const names = [...all.keys()];
  const ours = all.get(names[0]!)!;
  const cells = (of: (measured: Measured) => readonly number[] | undefined, digits: number) =>
    names.map(name => {
      const values = of(all.get(name)!);
      return values === undefined || values.length === 0 ? '-' : spreadText(spreadOf(values), digits);
    });
  const perSecond = (rates: readonly Rate[] | undefined) => rates?.map(rate => rate.perSecond);
  const cpu = (rates: readonly Rate[] | undefined) => rates?.flatMap(rate => rate.gatewayCpuMs ?? []);
  const kinds = [...ours.refusals.keys()];
  const table = (title: string, rows: string[][]) => ({ title, columns: ['', ...names], rows });
  const median = (values: readonly number[]) => percentile(values, 50);
  const faultCount = ours.faults.length;
  return {
    title: 'The gateway alone: nothing is computed behind it; median (minimum-maximum)',
    versions,
    tables: [
      table('Time to first token at one client, ms', [
        ['p50', ...cells(one => one.firstTokenMsP50, 2)],
        ['p99', ...cells(one => one.firstTokenMsP99, 2)],
      ]),
      table('A second', [
        ['one-token streams', ...cells(one => perSecond(one.streams), 0)],
        [`tokens of many streams, ${UNPACED}`, ...cells(one => perSecond(one.tokens), 0)],
        [`tokens of many streams, one each every ${PACE_MS} ms`, ...cells(one => perSecond(one.pacedTokens), 0)],
        ...kinds.map(kind => [`refusals: ${kind}`, ...cells(one => perSecond(one.refusals.get(kind)), 0)]),
      ]),
      table("Processor time of the gateway's process, ms", [
        ['one-token stream', ...cells(one => cpu(one.streams), 2)],
        ['1000 tokens, unpaced', ...cells(one => cpu(one.tokens)?.map(ms => ms * 1000), 1)],
        [`1000 tokens, ${PACE_MS} ms apart`, ...cells(one => cpu(one.pacedTokens)?.map(ms => ms * 1000), 1)],
        ...kinds.map(kind => [`refusal: ${kind}`, ...cells(one => cpu(one.refusals.get(kind)), 2)]),
      ]),
      ...(open === undefined
        ? []
        : [
            {
              title: `${open.openCount} open streams for ${open.seconds} s, a token each every 200 ms`,
              columns: ['', 'value'],
              rows: [
                ['faults', String(open.faults.length)],
                ['one-token streams beside them', String(open.streamCount)],
                ['refusals beside them', String(open.refusalCount)],
                ['memory of the gateway per open stream, KiB', open.kibPerStream?.toFixed(1) ?? '-'],
              ],
            },
          ]),
    ],
    figures: {
      ...Object.fromEntries(
        names.map(name => {
          const one = all.get(name)!;
          const figure = (values: readonly number[] | undefined): Spread | undefined =>
            values === undefined || values.length === 0 ? undefined : spreadOf(values);
          return [
            name,
            {
              firstTokenMsP50: figure(one.firstTokenMsP50),
              firstTokenMsP99: figure(one.firstTokenMsP99),
              aggregateStreamsPerSecond: figure(perSecond(one.streams)),
              aggregateTokensPerSecond: figure(perSecond(one.tokens)),
              pacedAggregateTokensPerSecond: figure(perSecond(one.pacedTokens)),
              cpuMsPerStream: figure(cpu(one.streams)),
              refusalsPerSecond: Object.fromEntries([...one.refusals].map(([kind, rates]) => [kind, figure(perSecond(rates))])),
              faultCount: one.faults.length,
            },
          ];
        }),
      ),
      open,
    },
    bars: [
      {
        name: 'time to first token at one client, p50 in ms',
        value: median(ours.firstTokenMsP50),
        relation: '<=',
        limit: FIRST_TOKEN_MS_BAR,
      },
      { name: 'one-token streams a second', value: median(perSecond(ours.streams)!), relation: '>=', limit: STREAMS_BAR },
      { name: 'relayed tokens a second, aggregate', value: median(perSecond(ours.tokens)!), relation: '>=', limit: TOKENS_BAR },
      ...kinds.map(kind => ({
        name: `refusals a second: ${kind}`,
        value: median(perSecond(ours.refusals.get(kind))!),
        relation: '>=' as const,
        limit: REFUSALS_BAR,
      })),
      { name: 'faults under load', value: faultCount, relation: '=', limit: 0 },
      ...(open === undefined ? [] : [{ name: 'faults with open streams', value: open.faults.length, relation: '=' as const, limit: 0 }]),
    ],
    notes: [
      'the time to first token is the whole of it, from the request’s first byte to the first token at the client: the stand-in’s part, which is not subtracted, is the last column for the peers',
      'ours checks a key, meters limits, queues fairly in Redis and can resume each stream; a proxy hands its upstream’s bytes on',
    ],
  };
}
