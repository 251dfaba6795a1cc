/** ReplayRun: the requests of a replay, sent to the product at their times. */
import { streamChat } from './load-client.ts';
import { type OpenLoopOptions, type OpenLoopRecord, sendOpenLoop } from './open-loop.ts';
import { passage, readText } from './passages.ts';
import type { LoadedRequest } from './replay-load.ts';
import type { Stack } from './stack.ts';

const PROGRESS_MS = 10_000;
/** Streams before the clock starts: the first runs of a process plan their memory and compile their code. */
const WARM_UP = { streams: 8, promptWords: 60, maxTokens: 24 };

export interface ReplayOptions extends Pick<OpenLoopOptions, 'clientsBound' | 'drainMs'> {
  /** Of every request. */
  headers?: Readonly<Record<string, string>>;
  progress(line: string): void;
}

export async function replay(stack: Stack, requests: readonly LoadedRequest[], options: ReplayOptions): Promise<OpenLoopRecord> {
  const { clientsBound, drainMs, headers, progress } = options;
  let saidAt = performance.now();
  return await sendOpenLoop(
    requests.map(({ atMs, tokenIds }) => ({ atMs, promptTokens: tokenIds.length })),
    {
      clientsBound,
      drainMs,
      send: (index, signal) => streamChat(stack.target, { body: bodyOf(requests[index]!), signal, ...(headers && { headers }) }),
      onProgress(sentCount, openCount) {
        if (performance.now() - saidAt < PROGRESS_MS) return;
        saidAt = performance.now();
        progress(`${sentCount} of ${requests.length} sent, ${openCount} open`);
      },
    },
  );
}

function bodyOf({ content, completionTokens }: LoadedRequest): Record<string, unknown> {
  return { model: 'default', messages: [{ role: 'user', content }], max_tokens: completionTokens, ignore_eos: true, temperature: 0.8 };
}

/** Of texts that no request has. */
export async function warmUp(stack: Stack): Promise<void> {
  const text = await readText();
  await Promise.all(
    Array.from({ length: WARM_UP.streams }, (_, index) =>
      streamChat(stack.target, {
        body: {
          ...{ model: 'default', max_tokens: WARM_UP.maxTokens, ignore_eos: true, temperature: 0.8 },
          messages: [{ role: 'user', content: `Warm-up ${passage(text, index, WARM_UP.promptWords)}` }],
        },
      }),
    ),
  );
}
