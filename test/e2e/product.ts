/** Product: the whole of Sluice as `npm start` runs it, with the real model, for one test file; ended with all its processes by `stop`. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { openRedis, type RedisClient } from '../../batcher/redis.ts';
import { Children } from '../../bench/children.ts';
import { type StreamOptions, type StreamOutcome, streamChat } from '../../bench/load-client.ts';
import { benchModel } from '../../bench/model.ts';
import { type Stack, type StackOptions, startStack } from '../../bench/stack.ts';
import type { ListOut, UsageOut } from '../../shared/admin-wire.ts';
import { parseCard } from '../../shared/batcher-card.ts';
import { BATCHER_CARDS } from '../../shared/keys.ts';

export class Product {
  readonly #stack: Stack;
  readonly redis: RedisClient;

  private constructor(stack: Stack) {
    this.#stack = stack;
    this.redis = openRedis(stack.redisUrl);
  }

  static async start(
    options: Pick<StackOptions, 'batcherCount' | 'batcherArguments' | 'embeddingModel' | 'bindings' | 'redisUrl'> & {
      /** Another than the default one: path of a GGUF file. */
      gguf?: string;
    } = {},
  ): Promise<Product> {
    const progress = () => undefined;
    const { gguf = process.env.SLUICE_TEST_GGUF ?? '', ...rest } = options;
    const model = await benchModel({ model: gguf }, progress);
    return new Product(await startStack({ model, threads: 2, progress, children: new Children(), ...rest }));
  }

  /** Up to and with /v1. */
  get baseUrl(): string {
    return this.#stack.target.baseUrl;
  }

  get key(): string {
    return this.#stack.target.apiKey;
  }

  get batcherPids(): readonly number[] {
    return this.#stack.batcherPids;
  }

  get batcherPid(): number {
    return this.#stack.batcherPid();
  }

  /** The process that goes by this id in Redis. */
  async pidOf(batcherId: string): Promise<number | undefined> {
    for (const pid of this.batcherPids) {
      const words = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
      if (batcherId !== '' && words.split('\0').includes(batcherId)) return pid;
    }
    return undefined;
  }

  /** Jobs under way, each with the process that holds it. */
  async holders(): Promise<Map<string, number>> {
    const holders = new Map<string, number>();
    for (const lock of await this.redis.keys('sluice:{*}:*:lock')) {
      const pid = await this.pidOf((await this.redis.get(lock)) ?? '');
      if (pid !== undefined) holders.set(lock.split(':').at(-2)!, pid);
    }
    return holders;
  }

  /** Asks a batcher to end, and resolves when it has. */
  async drain(pid: number): Promise<void> {
    process.kill(pid, 'SIGTERM');
    while (this.batcherPids.includes(pid)) await new Promise(resolve => setTimeout(resolve, 20));
  }

  /** Starts the drained ones again. */
  restartDrained(): void {
    this.#stack.restartDrained();
  }

  post(path: string, body: unknown, { key = this.key, ...init }: RequestInit & { key?: string } = {}): Promise<Response> {
    return fetch(`${this.baseUrl}${path}`, {
      ...init,
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...(init.headers as Record<string, string>) },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
  }

  /** A key of that tenant. */
  async makeKey(tenant: string): Promise<string> {
    const response = await fetch(new URL('/admin/keys', this.baseUrl), {
      method: 'POST',
      headers: { authorization: `Bearer ${this.key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ tenant }),
    });
    if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
    return ((await response.json()) as { key: string }).key;
  }

  /** What that tenant has been charged so far, all days and keys together. */
  async usage(tenant: string): Promise<{ requests: number; promptTokens: number; completionTokens: number }> {
    const response = await fetch(new URL(`/admin/usage?tenant=${tenant}`, this.baseUrl), {
      headers: { authorization: `Bearer ${this.key}` },
    });
    const { data } = (await response.json()) as ListOut<UsageOut>;
    const sum = (field: 'requests' | 'prompt_tokens' | 'completion_tokens') => data.reduce((total, row) => total + row[field], 0);
    return { requests: sum('requests'), promptTokens: sum('prompt_tokens'), completionTokens: sum('completion_tokens') };
  }

  /** A streamed chat; asked again as long as the answer is that Redis is away. */
  async stream(options: StreamOptions): Promise<StreamOutcome> {
    for (;;) {
      const outcome = await streamChat(this.#stack.target, options);
      if (outcome.status !== 503) return outcome;
      await new Promise(resolve => setTimeout(resolve, 250));
    }
  }

  /** A whole chat reply; throws with the body for any status but 200. */
  async chat(body: ChatBody, key = this.key): Promise<ChatReply> {
    const response = await this.post('/chat/completions', { model: 'default', temperature: 0, max_tokens: 24, ...body }, { key });
    if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
    return (await response.json()) as ChatReply;
  }

  /** Everything that its programs have logged. */
  async log(): Promise<string> {
    const names = await readdir(this.#stack.logFolder);
    return (await Promise.all(names.map(name => readFile(join(this.#stack.logFolder, name), 'utf8')))).join('\n');
  }

  /** Rows in use, as the batcher's cards say. */
  async runningCount(): Promise<number> {
    const cards = Object.values(await this.redis.hgetall(BATCHER_CARDS)).flatMap(json => parseCard(json) ?? []);
    return cards.reduce((sum, card) => sum + card.runningCount + card.waitingCount, 0);
  }

  /** Resolves when the batcher holds nothing; cards come once a second. */
  async idle(): Promise<void> {
    const since = Date.now();
    for (;;) {
      const cards = Object.values(await this.redis.hgetall(BATCHER_CARDS)).flatMap(json => parseCard(json) ?? []);
      const fresh = cards.filter(card => card.writtenAt > since);
      if (fresh.length > 0 && fresh.every(card => card.runningCount + card.waitingCount === 0)) return;
      await new Promise(resolve => setTimeout(resolve, 50));
    }
  }

  async residentBytes(): Promise<number> {
    const match = /VmRSS:\s+(\d+) kB/.exec(await readFile(`/proc/${this.batcherPid}/status`, 'utf8'));
    return Number(match?.[1]) * 1024;
  }

  async stop(): Promise<void> {
    this.redis.disconnect();
    await this.#stack.close();
  }
}

export interface ChatBody {
  messages: unknown[];
  [name: string]: unknown;
}

export interface ChatReply {
  choices: {
    index: number;
    message: { content: string };
    finish_reason: string;
    logprobs: { content: { token: string; logprob: number; bytes: number[]; top_logprobs: unknown[] }[] } | null;
  }[];
  usage: { prompt_tokens: number; completion_tokens: number; total_tokens: number; prompt_tokens_details: { cached_tokens: number } };
}

export const user = (content: string) => ({ role: 'user', content });

export const textOf = (reply: ChatReply, index = 0): string => reply.choices[index]!.message.content;
