/**
 * Trace: lengths of real requests, from a file in the form of Azure's LLM inference traces (header TIMESTAMP,ContextTokens,GeneratedTokens).
 * Every row that is not of that form is an error: a figure must not rest on half a trace.
 */
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { UsageError } from './settings.ts';

export interface TracedRequest {
  promptTokens: number;
  completionTokens: number;
}

/** Beside the project's folder: a trace is too large to be part of it. */
const DEFAULT_TRACE = resolve(import.meta.dirname, '..', '..', 'shared', 'traces', 'azure-2023-conversation.csv');

const COLUMNS = ['ContextTokens', 'GeneratedTokens'] as const;

/** An empty path means the default one. */
export async function readTrace(path: string): Promise<TracedRequest[]> {
  const place = path === '' ? DEFAULT_TRACE : path;
  const text = await readFile(place, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new UsageError(`no trace at ${place} (${error.code}); give one in the form of Azure's LLM inference traces with --trace PATH`);
  });
  return parseTrace(text);
}

export function parseTrace(text: string): TracedRequest[] {
  const [header = '', ...lines] = text.split(/\r?\n/).filter(line => line.trim() !== '');
  const names = header.split(',').map(name => name.trim());
  const [promptColumn, completionColumn] = COLUMNS.map(column => {
    const place = names.indexOf(column);
    if (place < 0) throw new UsageError(`the trace has no column ${column}`);
    return place;
  }) as [number, number];
  const requests = lines.map((line, index) => {
    const cells = line.split(',');
    const [promptTokens, completionTokens] = [Number(cells[promptColumn]), Number(cells[completionColumn])];
    if (!(Number.isInteger(promptTokens) && promptTokens >= 1 && Number.isInteger(completionTokens) && completionTokens >= 1)) {
      throw new UsageError(`row ${index + 1} of the trace has no token counts: ${line.slice(0, 80)}`);
    }
    return { promptTokens, completionTokens };
  });
  if (requests.length === 0) throw new UsageError('the trace has no rows');
  return requests;
}

/** `count` rows at even distances over the whole trace, so that all of its day is in; more than it has repeats it. */
export function sampleTrace(trace: readonly TracedRequest[], count: number): TracedRequest[] {
  if (count >= trace.length) return Array.from({ length: count }, (_, index) => trace[index % trace.length]!);
  return Array.from({ length: count }, (_, index) => trace[Math.floor((index * trace.length) / count)]!);
}

export interface Scaling {
  /** Longest prompt and answer together that the model takes. */
  contextTokens: number;
  /** 100: the trace's longest request just fits the context; less makes all shorter in proportion. */
  percent: number;
}

/** Shrinks all lengths by one factor, which is returned too; a request keeps one prompt token and one answer token at least. */
export function scaleTrace(
  trace: readonly TracedRequest[],
  { contextTokens, percent }: Scaling,
): { requests: TracedRequest[]; factor: number } {
  const longest = trace.reduce((most, request) => Math.max(most, request.promptTokens + request.completionTokens), 0);
  const factor = Math.min(1, contextTokens / longest) * (percent / 100);
  const scaled = (tokens: number) => Math.max(1, Math.floor(tokens * factor));
  const requests = trace.map(request => ({
    promptTokens: scaled(request.promptTokens),
    completionTokens: scaled(request.completionTokens),
  }));
  return { requests, factor };
}
