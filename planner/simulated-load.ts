/**
 * SimulatedLoad: the requests of a trace as a simulation wants them: prompts that begin alike exactly where the trace's do, behind the tokens of a
 * template that all have in common.
 */
import type { SimulatedRequest } from './simulated-batcher.ts';
import type { TracedRequest } from './trace.ts';

export interface LoadShape {
  /** Tokens of one block of the trace's prefix identity. */
  blockTokens: number | undefined;
  templateTokens: number;
}

/** Ids of the template, of blocks and of prompts without blocks lie apart. */
const TEMPLATE = 0;
const FIRST_BLOCK = 2 ** 30;

export function* simulatedLoad(requests: Iterable<TracedRequest>, shape: LoadShape): Generator<SimulatedRequest> {
  let index = 0;
  for (const request of requests) {
    index += 1;
    yield {
      id: `r${index}`,
      arrivedAt: request.atMs,
      promptTokenIds: promptOf(request, index, shape),
      completionTokens: request.completionTokens,
    };
  }
}

function promptOf({ promptTokens, blockIds }: TracedRequest, index: number, { blockTokens, templateTokens }: LoadShape): number[] {
  const tokenIds = new Array<number>(promptTokens).fill(index);
  tokenIds.fill(TEMPLATE, 0, Math.min(templateTokens, promptTokens));
  if (blockIds === undefined || blockTokens === undefined) return tokenIds;
  for (let place = 0; place < blockIds.length; place++) {
    const from = templateTokens + place * blockTokens;
    if (from >= promptTokens) break;
    tokenIds.fill(FIRST_BLOCK + blockIds[place]!, from, Math.min(from + blockTokens, promptTokens));
  }
  return tokenIds;
}
