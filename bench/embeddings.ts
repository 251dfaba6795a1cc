/**
 * Bench `embeddings`: texts of many lengths through gateway, Redis and batcher; through our engine alone; and through transformers.js given the same
 * texts of the same model. The last two are each in a process of its own, without a server in front; all by themselves, one after the other, in one run.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ALL_MINILM, fetchEncoder } from '../batcher/model/download-encoder.ts';
import { prepareEncoder } from '../batcher/model/prepare-encoder.ts';
import { bench } from './bench.ts';
import type { Children } from './children.ts';
import { commonSettings } from './common-settings.ts';
import type { EncoderPlan } from './encoder-rate.ts';
import { benchModel } from './model.ts';
import { passage, readText } from './passages.ts';
import { type EmbeddingTimes, installTransformersJs } from './peers/transformers-js.ts';
import { type Spread, spreadOf, spreadText } from './spread.ts';
import { type Stack, startStack } from './stack.ts';
import { inTemporaryFolder } from './temporary-folder.ts';

/** What is lost by the way through HTTP and Redis, padding made up for it. */
const PEER_BAR = 1;
const AGREEMENT_BAR = 0.9999;
/** Texts of many languages with the vectors that an independent float32 implementation gives them. */
const REFERENCE = join(import.meta.dirname, '..', 'test', 'reference', 'all-minilm-l6-v2.json');
/** Words of the texts, in turn: titles, sentences, paragraphs. */
const WORD_COUNTS = [2, 5, 9, 14, 20, 30, 45, 70, 100, 140];

interface Case {
  name: string;
  /** Texts of one request. */
  batch: number;
  /** Requests at once. */
  clients: number;
}

const CASES: readonly Case[] = [
  { name: 'one text a request, 1 client', batch: 1, clients: 1 },
  { name: 'one text a request, 32 clients', batch: 1, clients: 32 },
  { name: '32 texts a request, 1 client', batch: 32, clients: 1 },
  { name: '32 texts a request, 4 clients', batch: 32, clients: 4 },
];

interface Measured {
  ours: Spread;
  /** Our engine without what is in front of it. */
  alone: Spread;
  theirs: Spread;
  /** Of theirs. */
  ratio: Spread;
  aloneRatio: Spread;
}

export const embeddingsBench = bench({
  settings: {
    threads: commonSettings.threads,
    texts: { kind: 'count', default: 320, min: 10, max: 100_000, help: 'texts of each measurement' },
    repetitions: { kind: 'count', default: 3, min: 1, max: 100, help: 'times that each side is measured' },
  },
  async run({ settings, progress, children }) {
    const folder = await fetchEncoder(ALL_MINILM);
    const peer = await installTransformersJs(folder, { progress, children });
    const { directory } = await prepareEncoder(folder);
    const model = await benchModel({ model: '' }, progress);
    const text = await readText();
    const texts = Array.from({ length: settings.texts }, (_, index) => passage(text, index, WORD_COUNTS[index % WORD_COUNTS.length]!));
    const { threads } = settings;
    await using stack = await startStack({ model, embeddingModel: ALL_MINILM.name, threads, progress, children });
    const warm = await embed(stack, texts.slice(0, 32));
    const reference = await leastCosines(stack);
    let tokens = 0;
    const results = new Map<Case, Measured>();
    let agreement = 1;
    for (const one of CASES) {
      const batches = Array.from({ length: Math.ceil(texts.length / one.batch) }, (_, index) =>
        texts.slice(index * one.batch, (index + 1) * one.batch),
      );
      const ours: number[] = [];
      const alone: number[] = [];
      const theirs: EmbeddingTimes[] = [];
      for (let repetition = 1; repetition <= settings.repetitions; repetition++) {
        progress(`${one.name}: repetition ${repetition} of ${settings.repetitions}`);
        const startedAt = performance.now();
        tokens = await ask(stack, batches, one.clients);
        ours.push((performance.now() - startedAt) / 1000);
        alone.push(await embedAlone({ directory, threads, batches }, children));
        theirs.push(await peer.embed({ batches, threads }));
      }
      agreement = Math.min(agreement, ...theirs.map(({ firstVector }) => cosine(firstVector, warm.vectors[0]!)));
      const rate = (seconds: number) => texts.length / seconds;
      results.set(one, {
        ours: spreadOf(ours.map(rate)),
        alone: spreadOf(alone.map(rate)),
        theirs: spreadOf(theirs.map(({ seconds }) => rate(seconds))),
        ratio: spreadOf(ours.map((seconds, index) => theirs[index]!.seconds / seconds)),
        aloneRatio: spreadOf(alone.map((seconds, index) => theirs[index]!.seconds / seconds)),
      });
    }
    const best = results.get(CASES.at(-1)!)!;
    return {
      title: `Embeddings of ${texts.length} texts of ${WORD_COUNTS[0]} to ${WORD_COUNTS.at(-1)} words, ${tokens} tokens, on ${ALL_MINILM.name}; median (minimum-maximum)`,
      versions: { ...model.versions, [peer.name]: peer.version },
      tables: [
        {
          title: `Least cosine with an independent float32 reference, ${reference.count} texts`,
          columns: ['', 'cosine'],
          rows: [
            ['one text a request', reference.alone.toFixed(7)],
            ['all in one request', reference.together.toFixed(7)],
          ],
        },
        {
          title: 'Texts per second',
          columns: ['', 'through the whole path', 'engine alone', `${peer.name}, in process`, 'ratio', 'ratio of the engine'],
          rows: [...results].map(([{ name }, { ours, alone, theirs, ratio, aloneRatio }]) => [
            name,
            ...[ours, alone, theirs].map(spread => spreadText(spread)),
            ...[ratio, aloneRatio].map(spread => spreadText(spread, 2)),
          ]),
        },
      ],
      figures: {
        unit: 'texts/s, aggregate',
        tokens,
        cases: Object.fromEntries([...results].map(([{ name }, measured]) => [name, measured])),
        agreement,
        reference,
      },
      bars: [
        {
          name: 'texts/s beside transformers.js, 32 texts a request and 4 clients',
          value: best.ratio.median,
          relation: '>=',
          limit: PEER_BAR,
        },
        {
          name: "least cosine of the reference's vectors and ours",
          value: Math.min(reference.alone, reference.together),
          relation: '>=',
          limit: AGREEMENT_BAR,
        },
        { name: "cosine of the peer's vector and ours", value: agreement, relation: '>=', limit: AGREEMENT_BAR },
      ],
      notes: [
        'transformers.js computes float32 weights on the same onnxruntime kernels, one call after the other, without HTTP; it has no clients at once, so its figures of a batch size are the same measurement twice; nor has the engine alone',
      ],
    };
  },
});

/** Seconds, in a process of its own. */
function embedAlone(plan: EncoderPlan, children: Children): Promise<number> {
  return inTemporaryFolder(async folder => {
    const path = join(folder, 'plan.json');
    await writeFile(path, JSON.stringify(plan));
    const { stdout } = await children.run(process.execPath, [new URL('./encoder-rate.ts', import.meta.url).pathname, path]);
    return Number(stdout);
  });
}

/** All batches, so many at once; their prompt tokens. */
async function ask(stack: Stack, batches: readonly (readonly string[])[], clients: number): Promise<number> {
  const waiting = [...batches];
  let tokens = 0;
  const client = async () => {
    for (let batch = waiting.shift(); batch !== undefined; batch = waiting.shift()) {
      const reply = await embed(stack, batch);
      tokens += reply.tokens;
    }
  };
  await Promise.all(Array.from({ length: clients }, client));
  return tokens;
}

/** Of the reference's vectors and ours. */
async function leastCosines(stack: Stack): Promise<{ count: number; alone: number; together: number }> {
  const { texts } = JSON.parse(await readFile(REFERENCE, 'utf8')) as { texts: { text: string; vector: string }[] };
  const wanted = texts.map(({ vector }) => floats(vector));
  const least = (vectors: readonly number[][]) => Math.min(...vectors.map((vector, index) => cosine(vector, wanted[index]!)));
  const together = await embed(
    stack,
    texts.map(({ text }) => text),
  );
  const alone: number[][] = [];
  for (const { text } of texts) alone.push((await embed(stack, [text])).vectors[0]!);
  return { count: texts.length, alone: least(alone), together: least(together.vectors) };
}

/** As OpenAI's clients ask. */
async function embed(stack: Stack, input: readonly string[]): Promise<{ tokens: number; vectors: number[][] }> {
  const { baseUrl, apiKey } = stack.target;
  const response = await fetch(`${baseUrl}/embeddings`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: ALL_MINILM.name, input, encoding_format: 'base64' }),
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  const reply = (await response.json()) as { data: { embedding: string }[]; usage: { prompt_tokens: number } };
  return { tokens: reply.usage.prompt_tokens, vectors: reply.data.map(({ embedding }) => floats(embedding)) };
}

/** Little-endian float32. */
function floats(base64: string): number[] {
  return [...new Float32Array(Uint8Array.from(Buffer.from(base64, 'base64')).buffer)];
}

function cosine(a: readonly number[], b: readonly number[]): number {
  const dot = a.reduce((sum, value, index) => sum + value * b[index]!, 0);
  return dot / (Math.hypot(...a) * Math.hypot(...b));
}
