/** LlamaServer: llama.cpp's own server with as many slots as there are clients, on a free port, until it is closed. */
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../../scripts/supervisor/free-port.ts';
import type { BenchRun } from '../bench.ts';
import type { Target } from '../load-client.ts';
import type { LlamaCpp } from './llama-cpp.ts';

const HOST = '127.0.0.1';
const START_PATIENCE_MS = 120_000;
const POLL_MS = 100;

export interface LlamaServer extends AsyncDisposable {
  target: Target;
  pid: number;
}

export interface LlamaServerOptions {
  modelPath: string;
  threads: number;
  slots: number;
  /** Of each slot. */
  contextTokens: number;
}

/** Arguments that matter to the figures; everything else is its default (continuous batching, flash attention where it pays, f16 cache). */
export function llamaServerArguments({ modelPath, threads, slots, contextTokens }: LlamaServerOptions): string[] {
  const each = ['-t', String(threads), '-tb', String(threads), '-np', String(slots), '-c', String(slots * contextTokens)];
  return ['-m', modelPath, ...each];
}

/** Throws when it does not come up. */
export async function startLlamaServer(
  { programPath }: LlamaCpp,
  options: LlamaServerOptions,
  { children }: Pick<BenchRun, 'children'>,
): Promise<LlamaServer> {
  const port = await freePort(HOST);
  const args = [...llamaServerArguments(options), '--host', HOST, '--port', String(port), '--log-disable'];
  const child = children.start(programPath, args, { stdio: 'ignore' });
  const close = () => children.end(child);
  let isEnded = false;
  child.once('error', () => {
    isEnded = true;
  });
  child.once('exit', () => {
    isEnded = true;
  });
  const deadline = performance.now() + START_PATIENCE_MS;
  for (;;) {
    const response = await fetch(`http://${HOST}:${port}/health`).catch(() => undefined);
    await response?.body?.cancel();
    if (response?.ok) break;
    if (isEnded || performance.now() > deadline) {
      await close();
      throw new Error(`llama.cpp's server did not come up: ${programPath} ${args.join(' ')}`);
    }
    await sleep(POLL_MS);
  }
  return {
    target: { baseUrl: `http://${HOST}:${port}/v1`, apiKey: 'none' },
    pid: child.pid!,
    close,
    [Symbol.asyncDispose]: close,
  } as LlamaServer;
}
