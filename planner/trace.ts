/**
 * Trace: real requests by time, lengths and, where the trace has it, prefix identity; read from Azure's CSV or Mooncake's JSONL.
 * Guarantee: every row was of the form that the file claims; a figure must not rest on half a trace.
 */
import { PlanningError } from './planning-error.ts';

export interface TracedRequest {
  /** From the first request of the trace. */
  atMs: number;
  promptTokens: number;
  completionTokens: number;
  /** Which block of text stands at each place of the prompt; two prompts share what their ids share from the front. */
  blockIds?: readonly number[];
}

export interface Trace {
  requests: readonly TracedRequest[];
  /** Tokens of one block; undefined where the trace has no prefix identity. */
  blockTokens: number | undefined;
}

/** As Mooncake's release says. */
const MOONCAKE_BLOCK_TOKENS = 512;
const MOST_SHOWN = 80;

/** By what is in it, not by its name: JSON lines are Mooncake's form, anything else is read as Azure's. Throws PlanningError. */
export function parseTrace(text: string): Trace {
  const lines = text.split(/\r?\n/).filter(line => line.trim() !== '');
  const isJson = lines[0]?.trimStart().startsWith('{') === true;
  const rows = isJson ? lines.map(mooncakeRow) : azureRows(lines);
  if (rows.length === 0) throw new PlanningError('the trace has no rows');
  const start = rows.reduce((least, { atMs }) => Math.min(least, atMs), Number.POSITIVE_INFINITY);
  const requests = rows.map(row => ({ ...row, atMs: row.atMs - start })).sort((a, b) => a.atMs - b.atMs);
  return { requests, blockTokens: isJson ? MOONCAKE_BLOCK_TOKENS : undefined };
}

/** Columns by name, wherever they stand. A file of lengths alone has no times: all of its requests come at 0. */
function azureRows(lines: readonly string[]): TracedRequest[] {
  const [header = '', ...rows] = lines;
  const names = header.split(',').map(name => name.trim());
  const column = (name: string) => {
    const place = names.indexOf(name);
    if (place < 0) throw new PlanningError(`the trace has no column ${name}`);
    return place;
  };
  const [prompt, completion] = [column('ContextTokens'), column('GeneratedTokens')];
  const time = names.indexOf('TIMESTAMP');
  return rows.map((line, index) => {
    const cells = line.split(',');
    const [promptTokens, completionTokens] = [Number(cells[prompt]), Number(cells[completion])];
    const atMs = time < 0 ? 0 : timeOf(cells[time] ?? '');
    if (!isCount(promptTokens) || !isCount(completionTokens)) throw badRow(index, 'token counts', line);
    if (Number.isNaN(atMs)) throw badRow(index, 'time', line);
    return { atMs, promptTokens, completionTokens };
  });
}

/** `2023-11-16 18:15:46.6805900`, in UTC whatever this machine's zone, so that no hour is lost or had twice. */
function timeOf(text: string): number {
  const [, second, fraction = ''] = /^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d+)?$/.exec(text.trim()) ?? [];
  return second === undefined ? Number.NaN : Date.parse(`${second.replace(' ', 'T')}Z`) + Number(`0${fraction}`) * 1000;
}

function mooncakeRow(line: string, index: number): TracedRequest {
  let row: Record<string, unknown>;
  try {
    row = JSON.parse(line) as Record<string, unknown>;
  } catch {
    throw badRow(index, 'JSON', line);
  }
  const { timestamp, input_length: promptTokens, output_length: completionTokens, hash_ids: ids } = row;
  if (!isCount(promptTokens) || !isCount(completionTokens)) throw badRow(index, 'token counts (input_length, output_length)', line);
  if (typeof timestamp !== 'number' || !(timestamp >= 0)) throw badRow(index, 'time (timestamp, in ms)', line);
  const isWhole =
    Array.isArray(ids) && ids.every(id => Number.isInteger(id)) && ids.length === Math.ceil(promptTokens / MOONCAKE_BLOCK_TOKENS);
  if (!isWhole) throw badRow(index, `hash_ids, one for each ${MOONCAKE_BLOCK_TOKENS} tokens of the prompt`, line);
  return { atMs: timestamp, promptTokens, completionTokens, blockIds: ids as number[] };
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 1;
}

function badRow(index: number, what: string, line: string): PlanningError {
  return new PlanningError(`row ${index + 1} of the trace has no ${what}: ${line.slice(0, MOST_SHOWN)}`);
}
