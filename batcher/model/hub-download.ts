/**
 * HubDownload: one file over HTTP into a part file, going on where an earlier try ended.
 * Writes are by position and of one fixed content, so that two processes that download at once do each other no harm.
 */
import { open, rm, stat } from 'node:fs/promises';

export interface DownloadOptions {
  /** Size that the file must have. */
  byteLength: number;
  onBytes: (doneBytes: number) => void;
  signal: AbortSignal | undefined;
}

/** Until the answer's head; an unreachable hub must not hold up the next source. */
const CONNECT_MS = 5_000;
/** Without a byte for so long the connection counts as dead. */
const STALL_MS = 20_000;

type Environment = Readonly<Record<string, string | undefined>>;

const DEFAULT_HUB = 'https://huggingface.co';

/** Where the Hugging Face hub has a file. Throws when the environment says that no hub is to be asked. */
export function hubUrl(file: { repository: string; revision: string; path: string }, environment: Environment): string {
  if (/^(1|true|yes|on)$/i.test(environment.HF_HUB_OFFLINE ?? '')) throw new Error('HF_HUB_OFFLINE is set');
  const endpoint = (environment.HF_ENDPOINT || DEFAULT_HUB).replace(/\/+$/, '');
  return `${endpoint}/${file.repository}/resolve/${file.revision}/${file.path}`;
}

/** Resolves when the part file has its full size; throws when the source cannot give it. */
export async function downloadFile(url: string, partPath: string, { byteLength, onBytes, signal }: DownloadOptions): Promise<void> {
  const start = await resumePoint(partPath, byteLength);
  onBytes(start);
  if (start === byteLength) return;
  const patience = new AbortController();
  let timer = setTimeout(() => patience.abort(new Error(`no answer within ${CONNECT_MS / 1000} s`)), CONNECT_MS);
  try {
    const response = await fetch(url, {
      headers: start > 0 ? { range: `bytes=${start}-` } : {},
      signal: signal === undefined ? patience.signal : AbortSignal.any([signal, patience.signal]),
    });
    let at = response.status === 206 ? start : 0;
    if (!response.ok || response.body === null) throw new Error(`it answered ${response.status} ${response.statusText}`.trim());
    const announced = Number(response.headers.get('content-length') ?? Number.NaN);
    if (Number.isFinite(announced) && at + announced !== byteLength)
      throw new Error(`its file has ${at + announced} bytes instead of ${byteLength}`);
    await using part = await open(partPath, start > 0 ? 'r+' : 'w');
    for await (const piece of response.body as AsyncIterable<Uint8Array>) {
      clearTimeout(timer);
      timer = setTimeout(() => patience.abort(new Error(`no byte came for ${STALL_MS / 1000} s`)), STALL_MS);
      if (at + piece.length > byteLength) throw new Error(`it sent more than ${byteLength} bytes`);
      await part.write(piece, 0, piece.length, at);
      at += piece.length;
      onBytes(at);
    }
    if (at < byteLength) throw new Error(`the connection ended after ${at} of ${byteLength} bytes`);
    await part.sync();
  } catch (thrown) {
    throw patience.signal.aborted ? patience.signal.reason : plainReason(thrown);
  } finally {
    clearTimeout(timer);
  }
}

async function resumePoint(partPath: string, byteLength: number): Promise<number> {
  const size = await stat(partPath).then(
    found => found.size,
    () => 0,
  );
  if (size <= byteLength) return size;
  await rm(partPath, { force: true });
  return 0;
}

/** fetch hides the reason of a failed connection in the cause. */
function plainReason(thrown: unknown): unknown {
  return thrown instanceof TypeError && thrown.cause instanceof Error ? thrown.cause : thrown;
}
