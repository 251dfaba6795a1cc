/** BatchRun: one batch from its file to its answers; a gateway that is away for a while is waited for. */
import { createReadStream, createWriteStream, openAsBlob } from 'node:fs';
import { basename } from 'node:path';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { CommandError } from './command-error.ts';
import { ask, gatewayCall, RefusedCall } from './gateway-call.ts';
import type { GatewayTarget } from './gateway-target.ts';

/** OpenAI's object, as far as it is used here. */
export interface Batch {
  id: string;
  endpoint: string;
  status: string;
  created_at: number;
  errors: { data: { message: string; line: number | null }[] } | null;
  output_file_id: string | null;
  error_file_id: string | null;
  request_counts: { total: number; completed: number; failed: number };
  usage: { input_tokens: number; output_tokens: number };
}

export interface Progress {
  done: number;
  total: number;
  label: string;
}

const POLL_MS = 1_000;
/** Rates are of this time before now. */
const RATE_MS = 15_000;

export function isOver({ status }: Batch): boolean {
  return ['completed', 'failed', 'expired', 'cancelled'].includes(status);
}

/** Uploads the file and begins its batch. */
export async function sendBatch(target: GatewayTarget, path: string, endpoint: string | undefined): Promise<Batch> {
  const url = endpoint ?? (await endpointOf(path));
  const form = new FormData();
  form.append('purpose', 'batch');
  form.append('file', await openAsBlob(path), basename(path));
  const file = (await (await ask(target, '/v1/files', { method: 'POST', body: form })).json()) as { id: string };
  const body = { input_file_id: file.id, endpoint: url, completion_window: '24h' };
  return await gatewayCall(target, '/v1')<Batch>('POST', '/batches', body);
}

/** What the first line says. */
async function endpointOf(path: string): Promise<string> {
  const lines = createInterface({ input: createReadStream(path, { encoding: 'utf8', end: 16 * 1024 * 1024 }) });
  for await (const line of lines) {
    if (line.trim() === '') continue;
    lines.close();
    const url = urlOf(line);
    if (url !== undefined) return url;
    break;
  }
  throw new CommandError(
    `The first line of ${path} is no request {"custom_id": …, "method": "POST", "url": …, "body": {…}}; --endpoint says where they go.`,
    2,
  );
}

function urlOf(line: string): string | undefined {
  try {
    const { url } = JSON.parse(line) as { url?: unknown };
    return typeof url === 'string' ? url : undefined;
  } catch {
    return undefined;
  }
}

export class BatchRun {
  readonly #target: GatewayTarget;
  #batch: Batch;
  /** Oldest first. */
  readonly #looks: { at: number; tokens: number; done: number }[] = [];

  constructor(target: GatewayTarget, batch: Batch) {
    this.#target = target;
    this.#batch = batch;
  }

  /** As it is when it is over, or when the signal comes. */
  async watch(signal: AbortSignal, show: (progress: Progress) => void): Promise<Batch> {
    const call = gatewayCall(this.#target, '/v1');
    while (!signal.aborted) {
      try {
        this.#batch = await call<Batch>('GET', `/batches/${this.#batch.id}`);
        show(this.#progress(performance.now()));
      } catch (thrown) {
        if (!(thrown instanceof RefusedCall && thrown.isPassing)) throw thrown;
        show({ ...this.#counts(), label: 'the gateway is away' });
      }
      if (isOver(this.#batch)) break;
      await sleep(POLL_MS, undefined, { signal }).catch(() => undefined);
    }
    return this.#batch;
  }

  #counts(): Pick<Progress, 'done' | 'total'> {
    const { total, completed, failed } = this.#batch.request_counts;
    // None are known while the input is looked through.
    return { done: completed + failed, total: Math.max(1, total) };
  }

  #progress(now: number): Progress {
    const { usage, status, request_counts: counts } = this.#batch;
    const { done, total } = this.#counts();
    this.#looks.push({ at: now, tokens: usage.output_tokens, done });
    while (this.#looks.length > 1 && now - this.#looks[1]!.at >= RATE_MS) this.#looks.shift();
    const first = this.#looks[0]!;
    const seconds = (now - first.at) / 1000;
    const parts = [status === 'in_progress' ? `${done} of ${total}` : status];
    if (counts.failed > 0) parts.push(`${counts.failed} failed`);
    if (seconds > 0 && usage.output_tokens > first.tokens)
      parts.push(`${((usage.output_tokens - first.tokens) / seconds).toFixed(1)} tokens/s`);
    if (seconds > 0 && done > first.done && done < total) parts.push(`${duration(((total - done) * seconds) / (done - first.done))} left`);
    return { done, total, label: parts.join(', ') };
  }
}

/** Writes what there is; the paths of what was written. */
export async function fetchResults(target: GatewayTarget, batch: Batch, paths: { output: string; errors: string }): Promise<string[]> {
  const written: string[] = [];
  for (const [id, path] of [
    [batch.output_file_id, paths.output],
    [batch.error_file_id, paths.errors],
  ] as const) {
    if (id === null) continue;
    const { body } = await ask(target, `/v1/files/${id}/content`, {});
    await pipeline(Readable.fromWeb(body as Parameters<typeof Readable.fromWeb>[0]), createWriteStream(path)).catch(error => {
      throw new CommandError(`The results could not be written to ${path} (${String(error.message)}). They are still at the gateway.`, 1);
    });
    written.push(path);
  }
  return written;
}

function duration(seconds: number): string {
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  const minutes = Math.ceil(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${(minutes / 60).toFixed(1)} h`;
}
