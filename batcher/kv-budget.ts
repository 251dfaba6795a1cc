/** KvBudget: how many KV blocks this process may hold, from the memory it may use; the figures are printed at the start. */

export interface KvBudget {
  blocks: number;
  bytes: number;
  /** Tokens that fit in all. */
  tokens: number;
  /** Sequences of full context length that fit at once. */
  fullSequences: number;
}

export interface KvBudgetRequest {
  /** As asked for; undefined takes a share of what is available. */
  bytes: number | undefined;
  availableBytes: number;
  kvBytesPerToken: number;
  blockTokens: number;
  contextTokens: number;
  rowCount: number;
}

/** The rest is for weights, activations and everyone else on the host. */
const SHARE_OF_AVAILABLE = 0.4;

/** Throws RangeError when not even one sequence of a block fits. */
export function kvBudget(request: KvBudgetRequest): KvBudget {
  const blockBytes = request.kvBytesPerToken * request.blockTokens;
  // More than every row at full length and as much again for prefixes is never of use.
  const mostUseful = 2 * request.rowCount * request.contextTokens * request.kvBytesPerToken;
  const bytes = request.bytes ?? Math.min(request.availableBytes * SHARE_OF_AVAILABLE, mostUseful);
  const blocks = Math.floor(bytes / blockBytes);
  if (blocks < 1) throw new RangeError(`kv-memory of ${Math.floor(bytes)} bytes holds no block; one takes ${blockBytes} bytes.`);
  const tokens = blocks * request.blockTokens;
  return { blocks, bytes: blocks * blockBytes, tokens, fullSequences: Math.floor(tokens / request.contextTokens) };
}
