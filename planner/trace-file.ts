/**
 * TraceFile: a trace by its well-known name or its path. Traces are too large to be part of the project; of each known one a sample is, so that
 * everything runs without them, and says so.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PlanningError } from './planning-error.ts';
import { parseTrace, type Trace } from './trace.ts';

/** Names for people, and the files as their publishers' releases are kept here. */
const KNOWN: Readonly<Record<string, string>> = {
  'azure-conversation': 'azure-2023-conversation.csv',
  'azure-code': 'azure-2023-code.csv',
  'mooncake-conversation': 'mooncake-conversation.jsonl',
};
export const TRACE_NAMES = Object.keys(KNOWN);

const PROJECT = join(import.meta.dirname, '..');
const SAMPLES = join(import.meta.dirname, 'samples');

export interface NamedTrace extends Trace {
  name: string;
  /** Set when only the sample that the project has was found: what to do about it. */
  note: string | undefined;
}

/** A known name is looked for in `folder`, else where SLUICE_TRACES points, else in traces of the folder `shared` beside the project. Throws PlanningError. */
export async function readTrace(nameOrPath: string, folder?: string): Promise<NamedTrace> {
  const file = Object.hasOwn(KNOWN, nameOrPath) ? KNOWN[nameOrPath] : undefined;
  if (file === undefined) return { ...parseTrace(await readGiven(nameOrPath)), name: nameOrPath, note: undefined };
  const given = folder || process.env.SLUICE_TRACES;
  const text = await readFile(join(given || join(PROJECT, '..', 'shared', 'traces'), file), 'utf8').catch(() => undefined);
  if (text !== undefined) return { ...parseTrace(text), name: nameOrPath, note: undefined };
  if (given) throw new PlanningError(`no file ${file} in ${given}`);
  const sample = parseTrace(await readFile(join(SAMPLES, file), 'utf8'));
  const note = `only the project's sample of ${nameOrPath} was found, ${sample.requests.length} requests; for all of them put ${file} into a folder and name that with --traces or SLUICE_TRACES`;
  return { ...sample, name: nameOrPath, note };
}

async function readGiven(path: string): Promise<string> {
  return await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new PlanningError(
      `no trace at ${path} (${error.code}): give ${TRACE_NAMES.join(', ')}, or a file in the form of Azure's LLM inference traces (CSV) or of Mooncake's (JSONL)`,
    );
  });
}
