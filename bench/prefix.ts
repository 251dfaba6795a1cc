/**
 * Bench `prefix`: what a shared prefix is worth: time to first token through the whole path of a chat whose system message nobody has sent
 * before, beside the same system message with another question, and beside the very same chat again. Two processes are asked the same in
 * opposite order, so that every chat is answered cold by one and warm by the other, and the texts can be compared.
 */
import { type BenchRun, bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import { type StreamOutcome, streamChat } from './load-client.ts';
import { type BenchModel, benchModel } from './model.ts';
import { PromptMaker } from './prompt-maker.ts';
import type { Findings } from './report.ts';
import type { SettingSpecs } from './settings.ts';
import { type Spread, spreadOf, spreadText } from './spread.ts';
import { startStack } from './stack.ts';

const SPEED_UP_BAR = 15;
const QUESTIONS = ['Who is in this story, and what do they want? Answer in two sentences.', 'Write down what happens next in this story.'];
const SEED = 20_240_229;
/** Whether drafts pay is measured anew each time, and a verified token may be rounded otherwise: that would be taken for the prefix's doing. */
const NO_DRAFTS = ['--speculation', 'off'];

const SETTINGS = {
  ...commonSettings,
  repetitions: { kind: 'count', default: 5, min: 1, max: 100, help: 'different prefixes, each with a seed and without' },
  'prefix-tokens': { kind: 'count', default: 1000, min: 64, max: 1 << 20, help: 'tokens of the system message that requests share' },
  'max-tokens': { kind: 'count', default: 32, min: 1, max: 4096, help: 'tokens that each request generates' },
} as const satisfies SettingSpecs;

export const prefixBench = bench({
  settings: SETTINGS,
  async run(run) {
    const model = await benchModel(run.settings, run.progress);
    return findings(model, await measure(run, model));
  },
});

type PrefixRun = BenchRun<typeof SETTINGS>;

/** Nothing of it is held; its system message is; all of it is. */
const STATES = ['cold', 'shared prefix', 'whole prompt'] as const;
type State = (typeof STATES)[number];

interface Answer {
  state: State;
  isSeeded: boolean;
  /** The same for the same request. */
  chat: string;
  outcome: StreamOutcome;
}

async function measure(run: PrefixRun, model: BenchModel): Promise<Answer[]> {
  const { settings, progress, children } = run;
  const prompts = await PromptMaker.open(model);
  const answers: Answer[] = [];
  for (const process of [0, 1]) {
    progress(`process ${process + 1} of 2`);
    const stack = await startStack({ model, threads: settings.threads, batcherArguments: NO_DRAFTS, progress, children });
    try {
      // The first runs of a process plan their memory.
      await streamChat(stack.target, { body: body(settings, prompts.content(0, settings['prefix-tokens']), QUESTIONS[0]!) });
      for (let repetition = 1; repetition <= settings.repetitions; repetition++) {
        progress(`prefix ${repetition} of ${settings.repetitions}`);
        for (const isSeeded of [true, false]) {
          const prefix = 2 * repetition + Number(isSeeded);
          const content = prompts.content(prefix, settings['prefix-tokens']);
          const ask = async (question: number, state: State) => {
            const request = { ...body(settings, content, QUESTIONS[question]!), ...(isSeeded && { seed: SEED }) };
            const outcome = await streamChat(stack.target, { body: request });
            for (const fault of outcome.faults) progress(`fault: ${fault}`);
            answers.push({ state, isSeeded, chat: `${prefix}/${question}`, outcome });
          };
          await ask(process, 'cold');
          await ask(1 - process, 'shared prefix');
          await ask(process, 'whole prompt');
        }
      }
    } finally {
      await stack.close();
    }
  }
  return answers;
}

function findings(model: BenchModel, answers: readonly Answer[]): Findings {
  const faultCount = answers.flatMap(answer => answer.outcome.faults).length;
  const good = answers.filter(answer => answer.outcome.chunkTimes.length > 0 && answer.outcome.usage !== undefined);
  const rows = [true, false].flatMap(isSeeded =>
    STATES.map(state => ({ isSeeded, state, ...figuresOf(good.filter(answer => answer.isSeeded === isSeeded && answer.state === state)) })),
  );
  const speedUp = (row: (typeof rows)[number]) =>
    rows.find(other => other.isSeeded === row.isSeeded && other.state === 'cold')!.ttftMs.median / row.ttftMs.median;
  const warm = rows.filter(row => row.state !== 'cold');
  const differences = [true, false].map(isSeeded => differentTextCount(answers.filter(answer => answer.isSeeded === isSeeded)));
  const nameOf = (row: { isSeeded: boolean; state: State }) => `${row.state}, ${row.isSeeded ? 'with' : 'without'} seed`;
  return {
    title: `A shared prefix, cold and warm, through the whole path on ${model.name}; median (minimum-maximum)`,
    versions: model.versions,
    tables: [
      {
        title: 'Time to first token, ms',
        columns: ['held before', 'client', 'cold over this', 'batcher: queue', 'prefill', 'ttft', 'prompt tokens', 'cached'],
        rows: rows.map(row => [
          nameOf(row),
          spreadText(row.ttftMs),
          row.state === 'cold' ? '' : speedUp(row).toFixed(1),
          spreadText(row.batcherQueueMs, 0),
          spreadText(row.batcherPrefillMs, 0),
          spreadText(row.batcherTtftMs, 0),
          spreadText(row.promptTokens, 0),
          spreadText(row.cachedTokens, 0),
        ]),
      },
      {
        title: 'Texts of one chat, cold and warm, in two processes',
        columns: ['', 'chats with different texts'],
        rows: [
          ['with seed', String(differences[0])],
          ['without seed', String(differences[1])],
        ],
      },
    ],
    figures: {
      rows: rows.map(row => ({ ...row, speedUp: speedUp(row) })),
      differentTextCount: { withSeed: differences[0], withoutSeed: differences[1] },
      faultCount,
    },
    bars: [
      { name: 'faults of streams', value: faultCount, relation: '=', limit: 0 },
      ...warm.map(row => ({
        name: `TTFT cold over ${nameOf(row)}`,
        value: speedUp(row),
        relation: '>=' as const,
        limit: SPEED_UP_BAR,
      })),
      { name: 'chats with different texts, with seed', value: differences[0]!, relation: '=', limit: 0 },
      { name: 'chats with different texts, without seed', value: differences[1]!, relation: '=', limit: 0 },
    ],
  };
}

function figuresOf(
  answers: readonly Answer[],
): Record<'ttftMs' | 'batcherQueueMs' | 'batcherPrefillMs' | 'batcherTtftMs' | 'promptTokens' | 'cachedTokens', Spread> {
  if (answers.length === 0) throw new Error('no stream ended well');
  const over = (figure: (outcome: StreamOutcome) => number) => spreadOf(answers.map(answer => figure(answer.outcome)));
  return {
    ttftMs: over(outcome => outcome.chunkTimes[0]! - outcome.startedAt),
    batcherQueueMs: over(outcome => outcome.timings?.queueMs ?? Number.NaN),
    batcherPrefillMs: over(outcome => outcome.timings?.prefillMs ?? Number.NaN),
    batcherTtftMs: over(outcome => outcome.timings?.ttftMs ?? Number.NaN),
    promptTokens: over(outcome => outcome.usage!.promptTokens),
    cachedTokens: over(outcome => outcome.usage!.cachedTokens),
  };
}

/** Chats whose answers are not all the same text. */
function differentTextCount(answers: readonly Answer[]): number {
  const texts = Map.groupBy(answers, answer => answer.chat);
  return [...texts.values()].filter(same => new Set(same.map(answer => answer.outcome.text)).size > 1).length;
}

function body(settings: PrefixRun['settings'], system: string, question: string): Record<string, unknown> {
  return {
    model: 'default',
    messages: [
      { role: 'system', content: system },
      { role: 'user', content: question },
    ],
    max_tokens: settings['max-tokens'],
    ignore_eos: true,
    temperature: 0,
  };
}
