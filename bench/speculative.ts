/**
 * Bench `speculative`: tokens/s of one stream with drafts by prompt look-up and without, greedy: on prompts whose answer repeats them, where drafts
 * should pay, and on free text, where they should at least not cost. Two installations are up, and each prompt is given to both in turn within
 * seconds, so that a machine that grows slower or faster meanwhile does so for both.
 */
import { type BenchRun, bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import { type StreamOutcome, streamChat } from './load-client.ts';
import { type BenchModel, benchModel } from './model.ts';
import { passage, readText } from './passages.ts';
import type { Findings } from './report.ts';
import type { SettingSpecs } from './settings.ts';
import { type Spread, spreadOf, spreadText } from './spread.ts';
import { type Stack, startStack } from './stack.ts';

const EXTRACTION_BAR = 1.5;
const FREE_TEXT_BAR = 0.97;
/** Prompts of each kind; each has its own part of the text. */
const PROMPT_COUNT = 4;

const SETTINGS = {
  ...commonSettings,
  repetitions: { kind: 'count', default: 3, min: 1, max: 100, help: 'times that each prompt is given to both sides' },
  'max-tokens': { kind: 'count', default: 128, min: 8, max: 4096, help: 'tokens that each request generates' },
} as const satisfies SettingSpecs;

export const speculativeBench = bench({
  settings: SETTINGS,
  async run(run) {
    const model = await benchModel(run.settings, run.progress);
    return findings(model, await measure(run, model));
  },
});

type SpeculativeRun = BenchRun<typeof SETTINGS>;

const KINDS = ['extraction', 'free text'] as const;
type Kind = (typeof KINDS)[number];

interface Pair {
  kind: Kind;
  on: StreamOutcome;
  off: StreamOutcome;
  /** Tokens of drafts in this request, and those of them that the model would have chosen. */
  draftCount: number;
  acceptedCount: number;
}

async function measure({ settings, progress, children }: SpeculativeRun, model: BenchModel): Promise<Pair[]> {
  const text = await readText();
  const start = (speculation: string) =>
    startStack({ model, threads: settings.threads, batcherArguments: ['--speculation', speculation], progress, children });
  const on = await start('on');
  try {
    const off = await start('off');
    try {
      const ask = (stack: Stack, kind: Kind, index: number) =>
        streamChat(stack.target, { body: body(kind, chatOf(kind, text, index), settings['max-tokens']) });
      // The first runs of a process plan their memory, and speculation learns what steps cost here.
      for (const stack of [on, off]) await ask(stack, 'extraction', PROMPT_COUNT);
      const pairs: Pair[] = [];
      for (let repetition = 1; repetition <= settings.repetitions; repetition++) {
        for (const kind of KINDS) {
          progress(`repetition ${repetition} of ${settings.repetitions}: ${kind}`);
          for (let index = 0; index < PROMPT_COUNT; index++) {
            const before = await on.metrics();
            const withDrafts = await ask(on, kind, index);
            const after = await on.metrics();
            const counted = (name: string) => after.total(name) - before.total(name);
            const pair = {
              kind,
              on: withDrafts,
              off: await ask(off, kind, index),
              draftCount: counted('sluice_spec_decode_num_draft_tokens'),
              acceptedCount: counted('sluice_spec_decode_num_accepted_tokens'),
            };
            for (const fault of [...pair.on.faults, ...pair.off.faults]) progress(`fault: ${fault}`);
            pairs.push(pair);
          }
        }
      }
      return pairs;
    } finally {
      await off.close();
    }
  } finally {
    await on.close();
  }
}

interface Row {
  kind: Kind;
  on: Spread;
  off: Spread;
  /** Of the pairs' own ratios. */
  ratio: Spread;
  draftCount: number;
  acceptedCount: number;
  completionTokens: number;
  sameTextCount: number;
  pairCount: number;
}

function findings(model: BenchModel, pairs: readonly Pair[]): Findings {
  const faultCount = pairs.flatMap(pair => [...pair.on.faults, ...pair.off.faults]).length;
  const rows = KINDS.map((kind): Row => {
    const own = pairs.filter(pair => pair.kind === kind && hasPace(pair.on) && hasPace(pair.off));
    if (own.length === 0) throw new Error(`no stream of ${kind} ended well`);
    return {
      kind,
      on: spreadOf(own.map(pair => paceOf(pair.on))),
      off: spreadOf(own.map(pair => paceOf(pair.off))),
      ratio: spreadOf(own.map(pair => paceOf(pair.on) / paceOf(pair.off))),
      draftCount: sum(own.map(pair => pair.draftCount)),
      acceptedCount: sum(own.map(pair => pair.acceptedCount)),
      completionTokens: sum(own.map(pair => pair.on.usage!.completionTokens)),
      sameTextCount: own.filter(pair => pair.on.text === pair.off.text).length,
      pairCount: own.length,
    };
  });
  const share = (part: number, whole: number) => (whole === 0 ? '-' : (part / whole).toFixed(2));
  return {
    title: `One greedy stream with drafts by prompt look-up and without, through the whole path on ${model.name}; median (minimum-maximum)`,
    versions: model.versions,
    tables: [
      {
        title: 'Per-request tokens/s, from the first token to the last',
        columns: ['', 'with', 'without', 'ratio', 'drafted a token', 'accepted of drafted', 'same text'],
        rows: rows.map(row => [
          row.kind,
          spreadText(row.on),
          spreadText(row.off),
          spreadText(row.ratio, 2),
          share(row.draftCount, row.completionTokens),
          share(row.acceptedCount, row.draftCount),
          `${row.sameTextCount} of ${row.pairCount}`,
        ]),
      },
    ],
    figures: { unit: 'per-request tokens/s', rows, faultCount },
    bars: [
      { name: 'faults of streams', value: faultCount, relation: '=', limit: 0 },
      { name: 'extraction, with drafts over without', value: rows[0]!.ratio.median, relation: '>=', limit: EXTRACTION_BAR },
      { name: 'free text, with drafts over without', value: rows[1]!.ratio.median, relation: '>=', limit: FREE_TEXT_BAR },
    ],
    notes: [
      'every token is the one that the pass which verified it chose; a text may still differ, since many tokens at once are rounded otherwise than one (requests with a seed are verified token by token)',
    ],
  };
}

interface Message {
  role: 'user' | 'assistant';
  content: string;
}

/** Words of a text that is to be repeated; its answer ends by itself. */
const REPEATED_WORDS = 70;
/** Shown before, so that a small model too knows what is wanted. */
const EXAMPLE_COUNT = 2;

/** An answer that takes its words out of the prompt, or a story that goes on, with none of them. */
function chatOf(kind: Kind, text: string, index: number): Message[] {
  if (kind === 'free text') return [{ role: 'user', content: passage(text, index, 60) }];
  const source = (example: number) => passage(text, index * (EXAMPLE_COUNT + 1) + example, REPEATED_WORDS);
  const question = (example: number): Message => ({ role: 'user', content: `Repeat this text:\n\n${source(example)}` });
  const examples = Array.from({ length: EXAMPLE_COUNT }, (_, example): Message[] => [
    question(example),
    { role: 'assistant', content: source(example) },
  ]);
  return [...examples.flat(), question(EXAMPLE_COUNT)];
}

/** A story never ends; what is repeated does, and what a model makes up afterwards is no extraction. */
function body(kind: Kind, messages: readonly Message[], maxTokens: number): Record<string, unknown> {
  return { model: 'default', messages, max_tokens: maxTokens, ignore_eos: kind === 'free text', temperature: 0 };
}

function hasPace({ usage, chunkTimes, faults }: StreamOutcome): boolean {
  return faults.length === 0 && usage !== undefined && chunkTimes.length > 1;
}

function paceOf({ usage, chunkTimes }: StreamOutcome): number {
  return ((usage!.completionTokens - 1) * 1000) / (chunkTimes.at(-1)! - chunkTimes[0]!);
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
