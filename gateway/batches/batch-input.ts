/** BatchInput: what a line of a batch's input must be, and what is said of one that is not, in OpenAI's words. */
import type { BatchFault } from './batch-store.ts';

export const BATCH_ENDPOINTS = ['/v1/chat/completions', '/v1/completions', '/v1/embeddings', '/v1/responses'] as const;
export type BatchEndpoint = (typeof BATCH_ENDPOINTS)[number];

export const MAX_LINES = 50_000;
const MAX_CUSTOM_ID = 512;

export interface LineRequest {
  customId: string;
  body: Record<string, unknown>;
}

/** The request of a line, or its first fault. */
export function parseLine(text: string, number: number, endpoint: string): LineRequest | BatchFault {
  const fault = (code: string, message: string, param: string | null = null): BatchFault => ({ code, message, param, line: number });
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return fault('invalid_json_line', 'This line is not parseable as valid JSON.');
  }
  if (!isRecord(value)) return fault('invalid_json_line', 'This line is not a JSON object.');
  const { custom_id: customId, method, url, body } = value;
  for (const name of ['custom_id', 'method', 'url', 'body']) {
    if (value[name] === undefined) return fault('missing_required_parameter', `Missing required parameter: '${name}'.`, name);
  }
  if (typeof customId !== 'string' || customId.length < 1 || customId.length > MAX_CUSTOM_ID) {
    return fault('invalid_value', `'custom_id' must be a string of 1 to ${MAX_CUSTOM_ID} characters.`, 'custom_id');
  }
  if (method !== 'POST') return fault('invalid_method', "'method' must be 'POST'.", 'method');
  if (url !== endpoint) return fault('mismatched_url', `'url' must be the endpoint of the batch, '${endpoint}'.`, 'url');
  if (!isRecord(body)) return fault('invalid_value', "'body' must be a JSON object.", 'body');
  return { customId, body };
}

export function isFault(parsed: LineRequest | BatchFault): parsed is BatchFault {
  return 'code' in parsed;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
