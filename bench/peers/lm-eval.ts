/** LmEval: EleutherAI's lm-eval, unchanged, in the ignored folder .peers/, on the task beside the bench; it reaches nothing but the server it is given. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { inTemporaryFolder } from '../temporary-folder.ts';
import { offlinePython, type PeerRun, pipFolder } from './package-folder.ts';

const VERSION = '0.4.13';
/** Only its tokenizers are used. */
const TRANSFORMERS_VERSION = '5.23.0';
const TASK = 'sluice_common_sense';
const TASK_FOLDER = join(import.meta.dirname, '..', 'lm-eval');

export interface LmEval {
  version: string;
  /** Scores the server at `baseUrl` (ending in /v1). */
  score(server: { baseUrl: string; apiKey: string; model: string; tokenizerFolder: string; clients: number }): Promise<LmEvalScore>;
}

export interface LmEvalScore {
  accuracy: number;
  /** By the length of each choice. */
  normalizedAccuracy: number;
  standardError: number;
  items: LmEvalItem[];
}

export interface LmEvalItem {
  question: string;
  /** Of each choice: the sum of its tokens' log-probabilities. */
  logprobs: number[];
  isRight: boolean;
}

export async function installLmEval(run: PeerRun): Promise<LmEval> {
  const requirements = [`lm_eval[api]==${VERSION}`, `transformers==${TRANSFORMERS_VERSION}`];
  const folder = await pipFolder(`lm-eval-${VERSION}`, requirements, run);
  return {
    version: VERSION,
    score: ({ baseUrl, apiKey, model, tokenizerFolder, clients }) =>
      inTemporaryFolder(async output => {
        const connection = { model, base_url: `${baseUrl}/completions`, num_concurrent: clients, max_retries: 1 };
        const tokens = { tokenizer_backend: 'huggingface', tokenizer: tokenizerFolder, tokenized_requests: 'True' };
        const modelArguments = Object.entries({ ...connection, ...tokens }).map(([name, value]) => `${name}=${value}`);
        const args = [
          ...['-m', 'lm_eval', '--model', 'local-completions', '--model_args', modelArguments.join(',')],
          ...['--tasks', TASK, '--include_path', TASK_FOLDER, '--output_path', output, '--log_samples'],
        ];
        await run.children.run('python3', args, {
          cwd: TASK_FOLDER,
          env: { ...offlinePython(folder, join(output, 'cache')), OPENAI_API_KEY: apiKey },
        });
        return await readScore(output);
      }),
  };
}

interface Results {
  results: Record<string, Record<string, number>>;
}

interface Sample {
  doc: { question: string };
  filtered_resps: [string | number, unknown][];
  acc: number;
}

async function readScore(output: string): Promise<LmEvalScore> {
  const names = await readdir(output, { recursive: true });
  const read = async (pattern: RegExp): Promise<string> => {
    const name = names.find(one => pattern.test(one));
    if (name === undefined) throw new Error(`lm-eval wrote no ${pattern}`);
    return readFile(join(output, name), 'utf8');
  };
  const results = (JSON.parse(await read(/results_[^/]*\.json$/)) as Results).results[TASK]!;
  const samples = (await read(/samples_[^/]*\.jsonl$/))
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as Sample);
  return {
    accuracy: results['acc,none']!,
    normalizedAccuracy: results['acc_norm,none']!,
    standardError: results['acc_stderr,none']!,
    items: samples.map(({ doc, filtered_resps: responses, acc }) => ({
      question: doc.question,
      logprobs: responses.map(([logprob]) => Number(logprob)),
      isRight: acc === 1,
    })),
  };
}
