/**
 * ScoringLlamaServer: llama.cpp's own server behind the one thing it lacks that lm-eval asks for: the log-probability of each token of a prompt
 * (`echo` with `logprobs`). Each token of the prompt is had from the server as the only one that it may choose after those before it; the log-probability that
 * comes with it is of the model's own distribution. Prefixes are asked once.
 */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { LlamaServer } from './llama-server.ts';

const HOST = '127.0.0.1';
/** So much more likely that nothing else is chosen. */
const FORCE = 10_000;

interface Scored {
  logprob: number;
  /** Of the most likely token. */
  best: number;
}

interface Completion {
  completion_probabilities: { id: number; logprob: number; top_logprobs: { id: number; logprob: number }[] }[];
}

export interface ScoringServer extends AsyncDisposable {
  baseUrl: string;
}

export async function openScoring(server: LlamaServer): Promise<ScoringServer> {
  const scorer = new Scorer(server.target.baseUrl.replace(/\/v1$/, ''));
  const http = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', part => parts.push(part));
    request.on('end', () => {
      answer(scorer, Buffer.concat(parts).toString()).then(
        reply => response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(reply)),
        error => response.writeHead(500, { 'content-type': 'text/plain' }).end(String(error)),
      );
    });
  });
  await new Promise<void>(resolve => http.listen(0, HOST, resolve));
  return {
    baseUrl: `http://${HOST}:${(http.address() as AddressInfo).port}/v1`,
    [Symbol.asyncDispose]: () => closed(http),
  };
}

function closed(http: Server): Promise<void> {
  http.closeAllConnections();
  return new Promise(resolve => http.close(() => resolve()));
}

/** The old shape of OpenAI's completions, as far as lm-eval reads it. */
async function answer(scorer: Scorer, body: string): Promise<unknown> {
  const { prompt } = JSON.parse(body) as { prompt: number[] | number[][] };
  const prompts = typeof prompt[0] === 'number' ? [prompt as number[]] : (prompt as number[][]);
  const choices: unknown[] = [];
  for (const [index, tokenIds] of prompts.entries()) {
    const scores: Scored[] = [];
    for (let at = 1; at < tokenIds.length; at++) scores.push(await scorer.score(tokenIds.slice(0, at), tokenIds[at]!));
    const generated = await scorer.score(tokenIds, undefined);
    const all = [...scores, generated];
    choices.push({
      index,
      text: '',
      finish_reason: 'length',
      logprobs: {
        token_logprobs: [null, ...all.map(({ logprob }) => logprob)],
        top_logprobs: [null, ...all.map(({ best }) => ({ best }))],
      },
    });
  }
  return { object: 'text_completion', choices };
}

class Scorer {
  readonly #url: string;
  readonly #known = new Map<string, Scored>();

  constructor(url: string) {
    this.#url = url;
  }

  /** Of `tokenId` behind the prompt; of the most likely token where it is undefined. */
  async score(prompt: readonly number[], tokenId: number | undefined): Promise<Scored> {
    const key = `${prompt.join(',')}>${tokenId ?? ''}`;
    let known = this.#known.get(key);
    if (known === undefined) {
      known = await this.#ask(prompt, tokenId);
      this.#known.set(key, known);
    }
    return known;
  }

  async #ask(prompt: readonly number[], tokenId: number | undefined): Promise<Scored> {
    const response = await fetch(`${this.#url}/completion`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        ...{ prompt, n_predict: 1, temperature: 0, n_probs: 1, cache_prompt: true },
        logit_bias: tokenId === undefined ? [] : [[tokenId, FORCE]],
      }),
    });
    if (!response.ok) throw new Error(`llama.cpp's server: ${response.status} ${await response.text()}`);
    const chosen = ((await response.json()) as Completion).completion_probabilities[0];
    if (chosen === undefined || (tokenId !== undefined && chosen.id !== tokenId)) {
      throw new Error(`llama.cpp's server chose token ${chosen?.id}, not ${tokenId}`);
    }
    return { logprob: chosen.logprob, best: chosen.top_logprobs[0]?.logprob ?? chosen.logprob };
  }
}
