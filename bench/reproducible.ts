/**
 * Bench `reproducible`: seeded requests through the whole path, each first alone and cold; then again in every company that may change how it
 * is computed: all at once, with their prefixes held, beside requests without a seed, with too little KV memory, and by other processes. Every
 * byte must stay the same. Beside it, what that costs: the same requests with `--reproducible off`.
 */
import { kvBytesPerToken } from '../batcher/engine/ort-engine.ts';
import { defaultKvType } from '../batcher/model/prepare.ts';
import { type BenchRun, bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import { type StreamOutcome, streamChat } from './load-client.ts';
import { type BenchModel, benchModel } from './model.ts';
import { PromptMaker } from './prompt-maker.ts';
import type { Findings } from './report.ts';
import { differingBytes, type SeededRequest, seededRequests, shuffled } from './seeded-requests.ts';
import type { SettingSpecs } from './settings.ts';
import { type Spread, spreadOf, spreadText } from './spread.ts';
import { type Stack, startStack } from './stack.ts';

/** Requests whose pace alone is compared with and without reproducibility. */
const PACED_COUNT = 8;
/** A stream that waits for all others is silent for long. */
const PATIENCE_MS = 600_000;

const SETTINGS = {
  ...commonSettings,
  requests: { kind: 'count', default: 64, min: 1, max: 1024, help: 'seeded requests' },
  'kv-tokens': { kind: 'count', default: 2000, min: 704, max: 1 << 24, help: 'KV memory of the process that is to preempt' },
} as const satisfies SettingSpecs;

export const reproducibleBench = bench({
  settings: SETTINGS,
  async run(run) {
    const model = await benchModel(run.settings, run.progress);
    return findings(model, await new Comparison(run, model, await PromptMaker.open(model)).measure());
  },
});

type ReproducibleRun = BenchRun<typeof SETTINGS>;

interface Variant {
  name: string;
  /** By request; undefined where it was not asked. */
  outcomes: (StreamOutcome | undefined)[];
  /** Completion tokens of all over the time from the first request out to the last stream's end. */
  aggregateTokensPerSecond: number;
  preemptionCount: number;
}

interface Measured {
  reference: Variant;
  /** Must be equal to it. */
  variants: Variant[];
  cost: { on: Pace; off: Pace };
  /** With reproducibility off: what it would be without. */
  off: Variant;
}

interface Pace {
  aggregateTokensPerSecond: number;
  /** One stream alone, from its first to its last token. */
  perRequestTokensPerSecond: Spread;
}

class Comparison {
  readonly #run: ReproducibleRun;
  readonly #model: BenchModel;
  readonly #prompts: PromptMaker;
  readonly #requests: readonly SeededRequest[];
  readonly #contents: readonly string[];

  constructor(run: ReproducibleRun, model: BenchModel, prompts: PromptMaker) {
    this.#run = run;
    this.#model = model;
    this.#prompts = prompts;
    this.#requests = seededRequests(run.settings.requests);
    this.#contents = this.#requests.map((request, index) => prompts.content(index, request.promptTokens));
  }

  async measure(): Promise<Measured> {
    const count = this.#requests.length;
    const inOrder = Array.from({ length: count }, (_, index) => index);
    const all = count;
    const { kvBytesPerToken } = this.#shape();
    const kvKilobytes = Math.ceil((this.#run.settings['kv-tokens'] * kvBytesPerToken) / 1024);

    const first = await this.#onStack([], async stack => ({
      reference: await this.#variant(stack, 'alone, cold', { order: inOrder, width: 1 }),
      variants: [
        await this.#variant(stack, 'alone, prefixes held', { order: inOrder, width: 1 }),
        await this.#variant(stack, 'all at once, prefixes held', { order: shuffled(count, 11), width: all }),
      ],
    }));
    const second = await this.#onStack([], async stack => ({
      together: await this.#variant(stack, 'all at once, another process', { order: shuffled(count, 22), width: all }),
      beside: await this.#variant(stack, 'all at once, beside others without a seed', {
        order: shuffled(count, 33),
        width: all,
        hasCompany: true,
      }),
    }));
    const preempted = await this.#onStack(['--kv-memory', `${kvKilobytes}K`], stack =>
      this.#variant(stack, 'all at once, preempted', { order: shuffled(count, 44), width: all }),
    );
    const without = await this.#onStack(['--reproducible', 'off'], async stack => ({
      together: await this.#variant(stack, 'all at once, reproducible off', { order: shuffled(count, 22), width: all }),
      paced: await this.#variant(stack, 'alone, reproducible off', { order: inOrder.slice(0, PACED_COUNT), width: 1 }),
    }));
    return {
      reference: first.reference,
      variants: [...first.variants, second.together, second.beside, preempted],
      off: without.together,
      cost: {
        on: {
          aggregateTokensPerSecond: second.together.aggregateTokensPerSecond,
          perRequestTokensPerSecond: paceOf(first.variants[0]!),
        },
        off: {
          aggregateTokensPerSecond: without.together.aggregateTokensPerSecond,
          perRequestTokensPerSecond: paceOf(without.paced),
        },
      },
    };
  }

  #shape(): { kvBytesPerToken: number } {
    const { manifest } = this.#model;
    return { kvBytesPerToken: kvBytesPerToken(manifest.shape, defaultKvType(manifest)) };
  }

  async #onStack<T>(batcherArguments: readonly string[], use: (stack: Stack) => Promise<T>): Promise<T> {
    const { settings, progress, children } = this.#run;
    const stack = await startStack({ model: this.#model, threads: settings.threads, batcherArguments, progress, children });
    try {
      return await use(stack);
    } finally {
      await stack.close();
    }
  }

  async #variant(stack: Stack, name: string, how: { order: readonly number[]; width: number; hasCompany?: boolean }): Promise<Variant> {
    this.#run.progress(`${how.order.length} requests ${name}`);
    const preemptionsBefore = (await stack.metrics()).total('sluice_num_preemptions_total');
    const leaving = new AbortController();
    const company = how.hasCompany ? this.#company(stack, leaving.signal) : [];
    const outcomes: (StreamOutcome | undefined)[] = new Array(this.#requests.length).fill(undefined);
    const startedAt = performance.now();
    const waiting = [...how.order];
    const client = async () => {
      for (let index = waiting.shift(); index !== undefined; index = waiting.shift()) {
        const outcome = await streamChat(stack.target, { body: this.#body(index), silenceMs: PATIENCE_MS });
        outcomes[index] = outcome;
        for (const fault of outcome.faults) this.#run.progress(`fault of request ${index}: ${fault}`);
      }
    };
    await Promise.all(Array.from({ length: how.width }, client));
    const wallMs = performance.now() - startedAt;
    leaving.abort();
    await Promise.all(company);
    const completionTokens = outcomes.reduce((sum, outcome) => sum + (outcome?.usage?.completionTokens ?? 0), 0);
    return {
      name,
      outcomes,
      aggregateTokensPerSecond: (completionTokens * 1000) / wallMs,
      preemptionCount: (await stack.metrics()).total('sluice_num_preemptions_total') - preemptionsBefore,
    };
  }

  /** A few streams without a seed, greedy and not, that run until all others have ended. */
  #company(stack: Stack, signal: AbortSignal): Promise<StreamOutcome>[] {
    return [0, 0.9, 0.9].map((temperature, index) =>
      streamChat(stack.target, {
        body: {
          model: 'default',
          messages: [{ role: 'user', content: this.#prompts.content(this.#requests.length + index, 100) }],
          temperature,
          ignore_eos: true,
        },
        signal,
      }),
    );
  }

  #body(index: number): Record<string, unknown> {
    return { model: 'default', messages: [{ role: 'user', content: this.#contents[index]! }], ...this.#requests[index]!.parameters };
  }
}

function paceOf({ outcomes }: Variant): Spread {
  const paces = outcomes.slice(0, PACED_COUNT).flatMap(outcome => {
    if (outcome?.usage === undefined || outcome.chunkTimes.length < 2) return [];
    // Two choices are two streams in one.
    const tokens = outcome.usage.completionTokens - outcome.choiceTexts.length;
    return (tokens * 1000) / (outcome.chunkTimes.at(-1)! - outcome.chunkTimes[0]!);
  });
  return spreadOf(paces);
}

interface Difference {
  requestCount: number;
  byteCount: number;
}

/** A stream that did not end well differs by all of the reference's bytes. */
function difference(reference: Variant, other: Variant): Difference {
  const total = { requestCount: 0, byteCount: 0 };
  for (const [index, expected] of reference.outcomes.entries()) {
    const actual = other.outcomes[index];
    if (expected === undefined || actual === undefined) continue;
    const hasFaults = expected.faults.length + actual.faults.length > 0;
    const choices = Array.from({ length: Math.max(expected.choiceTexts.length, actual.choiceTexts.length) }, (_, choice) => choice);
    const byteCount = choices.reduce((sum, choice) => {
      const text = expected.choiceTexts[choice] ?? '';
      return sum + (hasFaults ? Buffer.byteLength(text) : differingBytes(text, actual.choiceTexts[choice] ?? ''));
    }, 0);
    const hasOtherEnd = !hasFaults && expected.finishReasons.toSorted().join() !== actual.finishReasons.toSorted().join();
    total.byteCount += byteCount;
    if (byteCount > 0 || hasFaults || hasOtherEnd) total.requestCount++;
  }
  return total;
}

function findings(model: BenchModel, { reference, variants, off, cost }: Measured): Findings {
  const differences = variants.map(variant => ({ ...variant, ...difference(reference, variant) }));
  const offDifference = difference(reference, off);
  const every = [reference, ...variants, off];
  const faultCount = every.flatMap(variant => variant.outcomes).flatMap(outcome => outcome?.faults ?? []).length;
  const byteCount = reference.outcomes.reduce((sum, outcome) => sum + Buffer.byteLength(outcome?.choiceTexts.join('') ?? ''), 0);
  const cachedTokens = (variant: Variant) => variant.outcomes.reduce((sum, outcome) => sum + (outcome?.usage?.cachedTokens ?? 0), 0);
  const preempted = variants.at(-1)!;
  const row = (variant: Variant, { requestCount, byteCount: bytes }: Difference) => [
    variant.name,
    String(requestCount),
    String(bytes),
    variant.aggregateTokensPerSecond.toFixed(1),
    String(cachedTokens(variant)),
    String(variant.preemptionCount),
  ];
  const share = cost.on.aggregateTokensPerSecond / cost.off.aggregateTokensPerSecond;
  const paceShare = cost.on.perRequestTokensPerSecond.median / cost.off.perRequestTokensPerSecond.median;
  return {
    title: `${reference.outcomes.length} seeded requests, ${byteCount} bytes of answers, through the whole path on ${model.name}`,
    versions: model.versions,
    tables: [
      {
        title: 'Against each request alone and cold',
        columns: ['', 'requests that differ', 'bytes', 'aggregate tokens/s', 'cached tokens', 'preemptions'],
        rows: [
          row(reference, { requestCount: 0, byteCount: 0 }),
          ...differences.map(variant => row(variant, variant)),
          row(off, offDifference),
        ],
      },
      {
        title: 'What it costs, tokens/s',
        columns: ['reproducible', 'all at once, aggregate', 'alone, per request'],
        rows: [
          ['on', cost.on.aggregateTokensPerSecond.toFixed(1), spreadText(cost.on.perRequestTokensPerSecond)],
          ['off', cost.off.aggregateTokensPerSecond.toFixed(1), spreadText(cost.off.perRequestTokensPerSecond)],
          ['on over off', share.toFixed(2), paceShare.toFixed(2)],
        ],
      },
    ],
    figures: {
      variants: differences.map(({ name, requestCount, byteCount: bytes, aggregateTokensPerSecond, preemptionCount }) => ({
        name,
        differingRequestCount: requestCount,
        differingByteCount: bytes,
        aggregateTokensPerSecond,
        preemptionCount,
      })),
      off: { differingRequestCount: offDifference.requestCount, differingByteCount: offDifference.byteCount },
      cost: { ...cost, aggregateShare: share, perRequestShare: paceShare },
      faultCount,
    },
    bars: [
      { name: 'faults of streams', value: faultCount, relation: '=', limit: 0 },
      ...differences.map(variant => ({
        name: `differing bytes, ${variant.name}`,
        value: variant.byteCount,
        relation: '=' as const,
        limit: 0,
      })),
      ...differences.map(variant => ({
        name: `differing requests, ${variant.name}`,
        value: variant.requestCount,
        relation: '=' as const,
        limit: 0,
      })),
      { name: `preemptions, ${preempted.name}`, value: preempted.preemptionCount, relation: '>=', limit: 1 },
    ],
    notes: [
      'differing bytes are counted from the first that differs to the end of the longer text',
      'aggregate tokens/s of all at once include the prefill of all prompts; the two that are compared have cold caches and the same order',
    ],
  };
}
