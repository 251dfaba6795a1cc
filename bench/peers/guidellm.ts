/**
 * Guidellm: the vLLM project's load generator guidellm, unchanged and with its own defaults, in the ignored folder .peers/; it reaches nothing but
 * the server it is given.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Target } from '../load-client.ts';
import { inTemporaryFolder } from '../temporary-folder.ts';
import { type GuidellmBenchmark, readGuidellmReport } from './guidellm-report.ts';
import { offlinePython, type PeerRun, pipFolder } from './package-folder.ts';

/** The last that does without PyTorch. */
const VERSION = '0.3.1';
/** It names no versions of its own; these are of its time. With datasets 5 it makes no prompts (an error of pickling). */
const BESIDE = ['datasets==4.1.1', 'pyarrow==21.0.0', 'transformers==5.17.0', 'jinja2==3.1.6'];
/** Of one benchmark: what has not ended by then is counted as incomplete. */
const PATIENCE_S = 1_800;

/** In guidellm's words. */
export const GUIDELLM_ROUTES = ['text_completions', 'chat_completions'] as const;
export type GuidellmRoute = (typeof GUIDELLM_ROUTES)[number];

export interface GuidellmLoad {
  route: GuidellmRoute;
  /** One benchmark for each: so many requests under way at once. */
  streamCounts: readonly number[];
  /** Of each benchmark. */
  requestCount: number;
  /** Of each request; prompts come out a token longer at times, where their text is read otherwise than it was made. */
  promptTokens: number;
  outputTokens: number;
}

export interface Guidellm {
  version: string;
  /** One benchmark after the other, in the order of `streamCounts`. */
  measure(server: Target & { model: string; tokenizerFolder: string }, load: GuidellmLoad): Promise<GuidellmBenchmark[]>;
  /** Tokens of each prompt as the route sends it, by Hugging Face's tokenizer and chat template from the folder. */
  countTokens(prompts: readonly string[], by: { tokenizerFolder: string; route: GuidellmRoute }): Promise<number[]>;
}

export async function installGuidellm(run: PeerRun): Promise<Guidellm> {
  const folder = await pipFolder(`guidellm-${VERSION}`, [`guidellm==${VERSION}`, ...BESIDE], run);
  return {
    version: VERSION,
    measure: ({ baseUrl, apiKey, model, tokenizerFolder }, { route, streamCounts, requestCount, promptTokens, outputTokens }) =>
      inTemporaryFolder(async output => {
        const path = join(output, 'report.json');
        const args = [
          ...['-m', 'guidellm', 'benchmark', '--target', baseUrl, '--model', model, '--processor', tokenizerFolder],
          ...['--rate-type', 'concurrent', '--rate', streamCounts.join(',')],
          ...['--max-requests', String(requestCount), '--max-seconds', String(PATIENCE_S)],
          ...['--data', `prompt_tokens=${promptTokens},output_tokens=${outputTokens}`],
          ...['--output-path', path, '--disable-progress', '--disable-console-outputs'],
        ];
        const own = { GUIDELLM__OPENAI__API_KEY: apiKey, GUIDELLM__PREFERRED_ROUTE: route };
        // It reads settings from a file .env of the folder that it runs in.
        await run.children.run('python3', args, { cwd: output, env: { ...offlinePython(folder, join(output, 'cache')), ...own } });
        return readGuidellmReport(await readFile(path, 'utf8'));
      }),
    countTokens: (prompts, { tokenizerFolder, route }) =>
      inTemporaryFolder(async output => {
        const path = join(output, 'prompts.json');
        await writeFile(path, JSON.stringify(prompts));
        const args = ['-c', COUNT_TOKENS, tokenizerFolder, path, route];
        const { stdout } = await run.children.run('python3', args, { cwd: output, env: offlinePython(folder, join(output, 'cache')) });
        return JSON.parse(stdout) as number[];
      }),
  };
}

const COUNT_TOKENS = `
import json, sys
from transformers import AutoTokenizer
folder, path, route = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
def tokens(prompt):
    if route == 'text_completions':
        return tokenizer(prompt)['input_ids']
    messages = [{'role': 'user', 'content': prompt}]
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
print(json.dumps([len(tokens(prompt)) for prompt in json.load(open(path))]))
`;
