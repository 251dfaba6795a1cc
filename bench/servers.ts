/**
 * Bench `servers`: Sluice as `npm start` runs it (gateway, Redis, batcher) beside llama.cpp's own server with as many slots as clients: the same
 * file, threads and requests, each side a fresh process, in turn. Aggregate tokens/s, time to first token, and resident memory with every slot at
 * its whole context.
 */
import { type BenchRun, bench } from './bench.ts';
import { burst, faultsOf } from './burst.ts';
import { commonSettings } from './common-settings.ts';
import { mib, residentBytes } from './leftovers.ts';
import { type BenchModel, benchModel } from './model.ts';
import { passage, readText } from './passages.ts';
import { installLlamaCpp, type LlamaCpp } from './peers/llama-cpp.ts';
import { llamaServerArguments, startLlamaServer } from './peers/llama-server.ts';
import { PromptMaker } from './prompt-maker.ts';
import type { Bar, Findings } from './report.ts';
import type { SettingSpecs } from './settings.ts';
import { type Spread, spreadOf, spreadText } from './spread.ts';
import { type Stack, startStack } from './stack.ts';
import { type StreamFigures, streamFigures } from './stream-figures.ts';

const AGGREGATE_BAR = 1.5;
const WARM_UP_TOKENS = 4;
/** Of the prompt and answer that fill a slot, left for the template and the answer. */
const FILL_SLACK_TOKENS = 40;
const FILL_ANSWER_TOKENS = 16;

const SETTINGS = {
  ...commonSettings,
  repetitions: { kind: 'count', default: 3, min: 1, max: 100, help: 'times that each side is measured' },
  clients: { kind: 'counts', default: [1, 8, 32], min: 1, max: 256, help: 'simultaneous requests, and slots of the peer' },
  'prompt-words': { kind: 'count', default: 70, min: 1, max: 4000, help: 'words of a prompt; 70 are about 120 tokens with the template' },
  'max-tokens': { kind: 'count', default: 128, min: 2, max: 4096, help: 'tokens that each request generates' },
  context: { kind: 'count', default: 2048, min: 256, max: 131_072, help: 'tokens of a slot' },
  'memory-slots': { kind: 'count', default: 32, min: 0, max: 256, help: 'slots that are filled to measure memory; 0 leaves it out' },
} as const satisfies SettingSpecs;

export const serversBench = bench({
  settings: SETTINGS,
  async run(run) {
    const model = await benchModel(run.settings, run.progress);
    const peer = await installLlamaCpp(run, 'llama-server');
    const measured = await measure(run, model, peer);
    return findings(run, { model, peer, measured });
  },
});

type ServersRun = BenchRun<typeof SETTINGS>;

interface Sides<T> {
  sluice: T;
  llama: T;
}

interface Measured {
  /** By number of clients; one entry a repetition. */
  byClients: Map<number, Sides<StreamFigures[]>>;
  /** Bytes; undefined where it was left out. */
  memory: (Sides<number> & { gateway: number; redis: number }) | undefined;
  faults: string[];
}

async function measure(run: ServersRun, model: BenchModel, peer: LlamaCpp): Promise<Measured> {
  const { settings, progress } = run;
  const { clients: clientCounts, repetitions, context, threads } = settings;
  const text = await readText();
  const measured: Measured = { byClients: new Map(), memory: undefined, faults: [] };
  let used = 0;
  const figuresOf = async (target: Stack['target'], clients: number, first: number): Promise<StreamFigures> => {
    await burst(target, clients, { content: index => passage(text, first + index, 1), maxTokens: WARM_UP_TOKENS });
    const content = (index: number) => passage(text, first + clients + index, settings['prompt-words']);
    const outcomes = await burst(target, clients, { content, maxTokens: settings['max-tokens'] });
    const faults = outcomes.flatMap(outcome => faultsOf(outcome, settings['max-tokens']));
    for (const fault of new Set(faults)) progress(`fault: ${fault}`);
    measured.faults.push(...faults);
    const good = outcomes.filter(outcome => faultsOf(outcome, settings['max-tokens']).length === 0);
    if (good.length === 0) throw new Error('no stream ended well');
    return streamFigures(good);
  };
  for (let repetition = 1; repetition <= repetitions; repetition++) {
    for (const clients of clientCounts) {
      progress(`repetition ${repetition} of ${repetitions}: ${clients} clients`);
      const both = measured.byClients.get(clients) ?? { sluice: [], llama: [] };
      measured.byClients.set(clients, both);
      {
        await using stack = await startStack({ ...run, model, threads, progress: quietly(progress) });
        both.sluice.push(await figuresOf(stack.target, clients, used));
      }
      {
        const options = { modelPath: model.ggufPath, threads, slots: clients, contextTokens: context };
        await using server = await startLlamaServer(peer, options, run);
        both.llama.push(await figuresOf(server.target, clients, used));
      }
      used += 2 * clients;
    }
  }
  if (settings['memory-slots'] > 0) measured.memory = await measureMemory(run, model, peer);
  return measured;
}

/** Both with every slot's keys and values in memory. */
async function measureMemory(run: ServersRun, model: BenchModel, peer: LlamaCpp): Promise<NonNullable<Measured['memory']>> {
  const { settings, progress } = run;
  const { threads, context, 'memory-slots': slots } = settings;
  progress(`memory of ${slots} slots of ${context} tokens`);
  const prompts = await PromptMaker.open(model);
  // One prompt for all: it is computed once, and each sequence has a copy of its own in its row.
  const filling = prompts.content(0, context - FILL_SLACK_TOKENS);
  const fill = { content: () => filling, maxTokens: FILL_ANSWER_TOKENS };
  const memory = { sluice: 0, gateway: 0, redis: 0, llama: 0 };
  {
    await using stack = await startStack({ ...run, model, threads, progress: quietly(progress) });
    await burst(stack.target, 1, fill);
    await burst(stack.target, slots, fill);
    memory.sluice = await residentBytes(stack.batcherPid(), 'peak');
    memory.gateway = await residentBytes(stack.gatewayPid()!, 'peak');
    memory.redis = await residentBytes(stack.redisPid()!, 'peak');
  }
  {
    await using server = await startLlamaServer(peer, { modelPath: model.ggufPath, threads, slots, contextTokens: context }, run);
    const text = await readText();
    // Its cache is written as a whole when it starts, so short prompts show it.
    await burst(server.target, slots, { content: index => passage(text, index, 1), maxTokens: FILL_ANSWER_TOKENS });
    memory.llama = await residentBytes(server.pid, 'peak');
  }
  return memory;
}

/** A stack that starts again and again says each time how. */
function quietly(progress: (line: string) => void): (line: string) => void {
  return line => {
    if (line.startsWith('warning')) progress(line);
  };
}

function findings(
  { settings }: ServersRun,
  { model, peer, measured }: { model: BenchModel; peer: LlamaCpp; measured: Measured },
): Findings {
  const rows: string[][] = [];
  const figures: Record<string, unknown> = {};
  const bars: Bar[] = [{ name: 'faults of streams, both sides', value: measured.faults.length, relation: '=', limit: 0 }];
  for (const [clients, { sluice, llama }] of measured.byClients) {
    const compare = (figure: (figures: StreamFigures) => number): Sides<Spread> & { ratio: Spread } => ({
      sluice: spreadOf(sluice.map(figure)),
      llama: spreadOf(llama.map(figure)),
      ratio: spreadOf(sluice.map((one, index) => figure(one) / figure(llama[index]!))),
    });
    const aggregate = compare(one => one.aggregateTokensPerSecond);
    const ttft = compare(one => one.ttftMsP50);
    const gap = compare(one => one.interTokenMsP50);
    const row = (name: string, { sluice, llama, ratio }: typeof aggregate, digits: number) =>
      rows.push([String(clients), name, spreadText(sluice, digits), spreadText(llama, digits), spreadText(ratio, 2)]);
    row('aggregate tokens/s', aggregate, 1);
    row('time to first token p50, ms', ttft, 0);
    row('between tokens p50, ms', gap, 1);
    figures[`clients${clients}`] = { aggregateTokensPerSecond: aggregate, ttftMsP50: ttft, interTokenMsP50: gap };
    if (clients > 1) {
      const name = `aggregate tokens/s at ${clients} clients over llama.cpp's server`;
      bars.push({ name, value: aggregate.ratio.median, relation: '>=', limit: AGGREGATE_BAR });
    }
    bars.push({
      name: `time to first token at ${clients} clients over llama.cpp's server`,
      value: ttft.ratio.median,
      relation: '<=',
      limit: 1,
    });
  }
  const { memory } = measured;
  if (memory !== undefined) figures.memoryBytes = memory;
  const options = { modelPath: 'FILE', threads: settings.threads, slots: 0, contextTokens: settings.context };
  return {
    title: `Sluice's whole path beside llama.cpp's server on ${model.name}; median (minimum-maximum)`,
    versions: { ...model.versions, 'llama.cpp': peer.version },
    tables: [
      { title: 'Simultaneous streams', columns: ['clients', '', 'sluice', 'llama.cpp', 'ratio'], rows },
      ...(memory === undefined
        ? []
        : [
            {
              title: `Resident memory at its peak, ${settings['memory-slots']} slots of ${settings.context} tokens, MiB`,
              columns: ['', 'value'],
              rows: [
                ["Sluice's batcher", mib(memory.sluice)],
                ["Sluice's gateway", mib(memory.gateway)],
                ['Redis', mib(memory.redis)],
                ["llama.cpp's server", mib(memory.llama)],
              ],
            },
          ]),
    ],
    figures,
    bars,
    notes: [
      `llama.cpp: llama-server ${llamaServerArguments(options).join(' ').replace('-np 0 -c 0', `-np CLIENTS -c CLIENTS*${settings.context}`)}`,
      'ours checks keys, meters, queues and keeps streams resumable on the same cores; llama.cpp answers its clients itself',
    ],
  };
}
