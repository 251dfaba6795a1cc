/**
 * TransformersJsRate: a program of its own: decode or prefill by transformers.js, one forward pass after the other without sampling; prints
 * tokens/s, of all rows together.
 *
 *   node bench/peers/transformers-js-rate.ts '<TransformersJsPlan as JSON>'
 */
import type { EngineWork } from '../engine-rate.ts';
import { stepRate } from '../step-rate.ts';
import { tokenSource } from '../token-source.ts';

export interface TransformersJsPlan {
  /** Its entry, as a URL. */
  library: string;
  /** Folder of models, and the model's name in it. */
  root: string;
  name: string;
  threads: number;
  vocabSize: number;
  work: EngineWork;
}

interface Cache {
  update(tensors: Record<string, unknown>): void;
}

interface Model {
  forward(inputs: Record<string, unknown>): Promise<Record<string, unknown>>;
}

interface Library {
  env: Record<string, unknown>;
  Tensor: new (type: string, data: BigInt64Array, dimensions: readonly number[]) => unknown;
  DynamicCache: new () => Cache;
  AutoModelForCausalLM: { from_pretrained(name: string, options: Record<string, unknown>): Promise<Model> };
}

const plan = JSON.parse(process.argv[2] ?? '{}') as TransformersJsPlan;
const { work } = plan;
const { AutoModelForCausalLM, DynamicCache, Tensor, env } = (await import(plan.library)) as Library;
Object.assign(env, { allowRemoteModels: false, localModelPath: plan.root });
const model = await AutoModelForCausalLM.from_pretrained(plan.name, {
  ...{ dtype: 'fp32', device: 'cpu', use_external_data_format: true },
  session_options: { intraOpNumThreads: plan.threads },
});
const nextToken = tokenSource(plan.vocabSize);

interface Feed {
  rowCount: number;
  /** A row: new ones, and all with them. */
  tokens: number;
  totalTokens: number;
  cache: Cache;
}

async function forward({ rowCount, tokens, totalTokens, cache }: Feed): Promise<void> {
  const int64s = (columns: number, value: () => number) =>
    new Tensor(
      'int64',
      BigInt64Array.from({ length: rowCount * columns }, () => BigInt(value())),
      [rowCount, columns],
    );
  const inputs = { input_ids: int64s(tokens, nextToken), attention_mask: int64s(totalTokens, () => 1) };
  const outputs = await model.forward({ ...inputs, past_key_values: cache });
  const present = Object.entries(outputs).filter(([name]) => name.startsWith('present.'));
  cache.update(Object.fromEntries(present.map(([name, tensor]) => [name.replace('present.', 'past_key_values.'), tensor])));
}

if (work.kind === 'prefill') {
  const prefill = () => forward({ rowCount: 1, tokens: work.promptTokens, totalTokens: work.promptTokens, cache: new DynamicCache() });
  await prefill();
  const startedAt = performance.now();
  await prefill();
  console.log((work.promptTokens * 1000) / (performance.now() - startedAt));
} else {
  const rowCount = work.batch;
  const cache = new DynamicCache();
  let totalTokens = work.contextTokens;
  await forward({ rowCount, tokens: totalTokens, totalTokens, cache });
  const step = () => forward({ rowCount, tokens: 1, totalTokens: ++totalTokens, cache });
  console.log(await stepRate({ rowCount, stepCount: work.stepCount }, step));
}
