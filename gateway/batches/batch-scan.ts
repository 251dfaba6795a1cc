/**
 * BatchScan: looks through a batch's input, a part at a time: each line becomes one that is to be done, or a fault. One fault and nothing of the
 * batch is done: a line without a good custom_id could not be told from the others in any result.
 */
import { isFault, MAX_LINES, parseLine } from './batch-input.ts';
import type { BatchFault, BatchRecord, BatchStore } from './batch-store.ts';
import type { FileStore } from './file-store.ts';
import { scanLines } from './line-scan.ts';

/** Of an input, looked through before others get their turn. */
const SCAN_BYTES = 1 << 20;
/** Faults of an input that are told. */
const MAX_FAULTS = 100;

/** Goes on where the record says; the record is changed and not yet put. */
export function scanInput(
  batch: BatchRecord,
  { files, store, maxLineBytes }: { files: FileStore; store: BatchStore; maxLineBytes: number },
): 'more' | 'sound' | 'faulty' {
  const pieces = { pieceFrom: (place: number) => files.pieceFrom(batch.inputFileId, place) };
  const from = { at: batch.scannedBytes, lines: batch.scannedLines };
  const { lines, state, isEnd } = scanLines(pieces, from, { budget: SCAN_BYTES, longest: maxLineBytes });
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false });
  const complain = (fault: BatchFault) => void (batch.errors.length < MAX_FAULTS && batch.errors.push(fault));
  for (const { number, at, bytes } of lines) {
    if (bytes.length > maxLineBytes) {
      complain({ code: 'line_too_long', message: `A line may have at most ${maxLineBytes} bytes.`, param: null, line: number });
      continue;
    }
    const text = decoded(decoder, bytes);
    if (text?.trim() === '') continue;
    const parsed = text === undefined ? notUtf8(number) : parseLine(text, number, batch.endpoint);
    if (isFault(parsed)) complain(parsed);
    else if (store.addLine(batch.id, { number, at, bytes: bytes.length, customId: parsed.customId })) batch.total++;
    else {
      const message = `The custom_id '${parsed.customId.slice(0, 64)}' is that of an earlier line.`;
      complain({ code: 'duplicate_custom_id', message, param: 'custom_id', line: number });
    }
  }
  batch.scannedBytes = state.at;
  batch.scannedLines = state.lines;
  if (batch.total > MAX_LINES) complain(ofAll('too_many_lines', `A batch may have at most ${MAX_LINES} requests.`));
  else if (isEnd && batch.total === 0 && batch.errors.length === 0) complain(ofAll('empty_file', 'The input file has no requests.'));
  const isOver = isEnd || batch.total > MAX_LINES || batch.errors.length >= MAX_FAULTS;
  if (!isOver) return 'more';
  return batch.errors.length === 0 ? 'sound' : 'faulty';
}

/** A fault of no line. */
export function ofAll(code: string, message: string): BatchFault {
  return { code, message, param: null, line: null };
}

function decoded(decoder: TextDecoder, bytes: Uint8Array): string | undefined {
  try {
    return decoder.decode(bytes);
  } catch {
    return undefined;
  }
}

function notUtf8(line: number): BatchFault {
  return { code: 'invalid_json_line', message: 'This line is not valid UTF-8.', param: null, line };
}
