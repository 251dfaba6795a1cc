/**
 * Bench `serve`: simultaneous streams through gateway, Redis and batcher, beside the engine alone given the same work in the same run.
 * Two ratios are judged. Whole run: completion tokens over wall time, prefill and all, on both sides. All running: the rate while every
 * stream is between its first and last token, beside the engine's decode at that batch.
 */
import { bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import type { WorkloadPlan, WorkloadTimes } from './engine-workload.ts';
import { type StreamOutcome, streamChat } from './load-client.ts';
import { benchModel, engineOptions } from './model.ts';
import { passage, readText } from './passages.ts';
import { type Spread, spreadOf, spreadText } from './spread.ts';
import { type Stack, startStack } from './stack.ts';
import { type StreamFigures, streamFigures } from './stream-figures.ts';

const SHARE_OF_ENGINE_BAR = 0.8;
const WARM_UP_TOKENS = 4;

export const serveBench = bench({
  settings: {
    ...commonSettings,
    repetitions: { kind: 'count', default: 3, min: 1, max: 100, help: 'times that each side is measured' },
    streams: { kind: 'count', default: 32, min: 1, max: 32, help: 'simultaneous requests' },
    'prompt-words': { kind: 'count', default: 70, min: 1, max: 4000, help: 'words of a prompt; 70 are about 120 tokens with the template' },
    'max-tokens': { kind: 'count', default: 48, min: 2, max: 4096, help: 'tokens that each request generates' },
  },
  async run({ settings, progress, children }) {
    const model = await benchModel(settings, progress);
    const text = await readText();
    const stack = await startStack({ model, threads: settings.threads, progress, children });
    const program = new URL('./engine-workload.ts', import.meta.url).pathname;
    const served: StreamFigures[] = [];
    const alone: WorkloadTimes[] = [];
    const faults: string[] = [];
    try {
      await burst(stack, settings.streams, index => body(passage(text, index, 1), WARM_UP_TOKENS));
      for (let repetition = 0; repetition < settings.repetitions; repetition++) {
        progress(`repetition ${repetition + 1} of ${settings.repetitions}: ${settings.streams} streams`);
        const prompt = (index: number) => passage(text, (repetition + 1) * settings.streams + index, settings['prompt-words']);
        const outcomes = await burst(stack, settings.streams, index => body(prompt(index), settings['max-tokens']));
        const repetitionFaults = outcomes.flatMap(outcome => [...outcome.faults, ...lengthFaults(outcome, settings['max-tokens'])]);
        faults.push(...repetitionFaults);
        if (repetitionFaults.length > 0)
          throw new Error(`streams did not end well: ${[...new Set(repetitionFaults)].slice(0, 5).join('; ')}`);
        served.push(streamFigures(outcomes));
        progress(`repetition ${repetition + 1} of ${settings.repetitions}: the engine alone`);
        const plan: WorkloadPlan = {
          engine: engineOptions(model, { threads: settings.threads, rowCount: settings.streams }),
          requests: outcomes.map(({ usage }) => ({ promptTokens: usage!.promptTokens, cachedTokens: usage!.cachedTokens })),
          completionTokens: settings['max-tokens'],
        };
        alone.push(JSON.parse((await children.run(process.execPath, [program, JSON.stringify(plan)])).stdout) as WorkloadTimes);
      }
    } finally {
      await stack.close();
    }
    const over = (figure: (figures: StreamFigures) => number) => spreadOf(served.map(figure));
    const engineOver = (figure: (times: WorkloadTimes) => number) => spreadOf(alone.map(figure));
    const whole = { served: over(f => f.aggregateTokensPerSecond), engine: engineOver(t => t.aggregateTokensPerSecond) };
    const allRunning = {
      served: over(f => f.allRunningAggregateTokensPerSecond ?? 0),
      engine: engineOver(t => t.decodeAggregateTokensPerSecond),
    };
    const latency = {
      ttftMsP50: over(f => f.ttftMsP50),
      ttftMsP99: over(f => f.ttftMsP99),
      interTokenMsP50: over(f => f.interTokenMsP50),
      interTokenMsP99: over(f => f.interTokenMsP99),
    };
    const perRequest = over(f => f.perRequestTokensPerSecondP50);
    const share = ({ served: mine, engine }: { served: Spread; engine: Spread }) => mine.median / engine.median;
    return {
      title: `${settings.streams} simultaneous streams through the whole path on ${model.name}: median (minimum-maximum)`,
      versions: model.versions,
      tables: [
        {
          title: 'Aggregate tokens/s of all streams together',
          columns: ['', 'whole path', 'engine alone', 'share'],
          rows: [
            ['whole run, prefill included', spreadText(whole.served), spreadText(whole.engine), share(whole).toFixed(2)],
            ['while all streams run', spreadText(allRunning.served), spreadText(allRunning.engine), share(allRunning).toFixed(2)],
          ],
        },
        {
          title: 'One client',
          columns: ['', 'value'],
          rows: [
            ['per-request tokens/s, p50', spreadText(perRequest)],
            ['TTFT ms, p50', spreadText(latency.ttftMsP50, 0)],
            ['TTFT ms, p99', spreadText(latency.ttftMsP99, 0)],
            ['inter-token ms, p50', spreadText(latency.interTokenMsP50)],
            ['inter-token ms, p99', spreadText(latency.interTokenMsP99)],
          ],
        },
      ],
      figures: {
        wholeRun: { unit: 'aggregate tokens/s', wholePath: whole.served, engine: whole.engine, share: share(whole) },
        allRunning: { unit: 'aggregate tokens/s', wholePath: allRunning.served, engine: allRunning.engine, share: share(allRunning) },
        perRequestTokensPerSecondP50: perRequest,
        ...latency,
        streamFaults: faults.length,
        promptTokensOfARequest: served[0]!.promptTokens / settings.streams,
        cachedTokensOfARequest: served[0]!.cachedTokens / settings.streams,
      },
      bars: [
        { name: 'streams that did not end with one finish_reason and [DONE]', value: faults.length, relation: '=', limit: 0 },
        { name: 'aggregate of the whole run as a share of the engine', value: share(whole), relation: '>=', limit: SHARE_OF_ENGINE_BAR },
        { name: 'aggregate while all run as a share of the engine', value: share(allRunning), relation: '>=', limit: SHARE_OF_ENGINE_BAR },
      ],
      notes: [
        'the engine alone gets the same prompt lengths (less what the prefix cache gave), one prefill each, then all decode together; random tokens, no sampling',
      ],
    };
  },
});

function burst(stack: Stack, count: number, bodyOf: (index: number) => Record<string, unknown>): Promise<StreamOutcome[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => streamChat(stack.target, { body: bodyOf(index) })));
}

function body(content: string, maxTokens: number): Record<string, unknown> {
  return { model: 'default', messages: [{ role: 'user', content }], max_tokens: maxTokens, ignore_eos: true, temperature: 0 };
}

/** With ignore_eos every stream runs to its bound. */
function lengthFaults({ usage, faults, finishReasons, chunkTimes }: StreamOutcome, maxTokens: number): string[] {
  if (faults.length > 0) return [];
  if (usage?.completionTokens !== maxTokens) return [`${usage?.completionTokens} completion tokens instead of ${maxTokens}`];
  if (finishReasons[0] !== 'length') return [`finish_reason ${finishReasons[0]} instead of length`];
  return chunkTimes.length === 0 ? ['no text'] : [];
}
