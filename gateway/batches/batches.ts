/**
 * Batches: the Durable Object of one tenant's files and batches; a thin host over stores and runner. An alarm brings it back after any end, and
 * its batches go on where they were.
 */
import { DurableObject } from 'cloudflare:workers';
import { ApiError, toApiError } from '../../shared/errors.ts';
import { type Env, readSettings, type Settings } from '../env.ts';
import { errorResponse } from '../error-response.ts';
import { discardBody } from '../linger.ts';
import { plainError, type RefusedCall } from '../tenant-call.ts';
import { BatchRunner } from './batch-runner.ts';
import { type BatchRecord, BatchStore } from './batch-store.ts';
import { COMPLETION_WINDOW_MS } from './batch-wire.ts';
import { FileStore, type StoredFile } from './file-store.ts';
import { LineApp } from './line-app.ts';
import type { ListRange } from './list-range.ts';
import { boundaryOf } from './multipart.ts';
import { receiveFile } from './upload.ts';

/** What a call gives, or why not: errors cross as plain data. */
export type Reply<T> = { value: T } | { refused: RefusedCall };

export interface BatchPlan {
  tenant: string;
  keyId: string;
  endpoint: string;
  inputFileId: string;
  metadata: Record<string, string> | null;
  outputLifetimeMs: number | undefined;
}

/** Files that are being received at once. */
const MAX_UPLOADS = 8;
/** Batches that are not over. */
const MAX_ACTIVE = 100;
/** While there is something to do: so soon after an end of the process it goes on, and so short that the object stays in memory. */
const ALARM_MS = 5_000;
/** An alarm's handler stays for a while: what runs beside it is then not put out of memory. */
const ALARM_STAY_MS = 5_000;
const PRUNE_MS = 60 * 60_000;
/** While there are batches and no files. */
const LOOK_MS = 24 * PRUNE_MS;
/** Batches that are over; the oldest are forgotten first. */
const MAX_ENDED = 10_000;
const RETRY_AFTER_SECONDS = 60;
const UPLOAD_RETRY_AFTER_SECONDS = 5;

export class Batches extends DurableObject<Env> {
  readonly #settings: Settings;
  readonly #lines: LineApp;
  #files: FileStore;
  #store: BatchStore;
  #runner: BatchRunner;
  #uploadCount = 0;

  constructor(state: DurableObjectState, env: Env) {
    super(state, env);
    this.#settings = readSettings(env);
    this.#lines = new LineApp(env, this.#settings);
    [this.#files, this.#store, this.#runner] = this.#open();
  }

  /** `/upload` takes a form, `/content?id=` gives a file's bytes: what may be too long for a call. */
  override async fetch(request: Request): Promise<Response> {
    try {
      const url = new URL(request.url);
      if (url.pathname === '/content') return this.#content(url.searchParams.get('id') ?? '');
      return Response.json(await this.#receive(request));
    } catch (thrown) {
      await discardBody(request);
      const error = toApiError(thrown);
      if (error.cause !== undefined) log({ event: 'request_failed', code: error.code, cause: String(error.cause) });
      return errorResponse(error);
    }
  }

  async #receive({ headers, body }: Request): Promise<StoredFile> {
    const boundary = boundaryOf(headers.get('content-type') ?? undefined);
    if (boundary === undefined || body === null) {
      throw new ApiError('invalid_value', 'A file is sent as multipart/form-data, with the fields purpose and file.');
    }
    if (this.#uploadCount >= MAX_UPLOADS) {
      const message = `You are sending ${MAX_UPLOADS} files at once, which is the most.`;
      throw new ApiError('queue_full', message, { retryAfterSeconds: UPLOAD_RETRY_AFTER_SECONDS });
    }
    this.#uploadCount++;
    try {
      const options = { files: this.#files, settings: this.#settings, clock: Date.now };
      return await receiveFile(body as ReadableStream<Uint8Array>, boundary, options);
    } finally {
      this.#uploadCount--;
      await this.#armAlarm();
    }
  }

  listFiles(range: ListRange, purpose: string | undefined): StoredFile[] {
    return this.#files.list({ ...range, limit: range.limit + 1 }, purpose);
  }

  findFile(id: string): StoredFile | undefined {
    return this.#files.find(id);
  }

  deleteFile(id: string): Reply<boolean> {
    if (this.#files.find(id) === undefined) return { value: false };
    const user = this.#store.active().find(batch => batch.inputFileId === id);
    if (user !== undefined) return refuse(new ApiError('invalid_value', `The batch '${user.id}' is not over and reads this file.`));
    this.#files.remove(id);
    return { value: true };
  }

  async create(plan: BatchPlan): Promise<Reply<BatchRecord>> {
    const input = this.#files.find(plan.inputFileId);
    if (input?.purpose !== 'batch') {
      const message = `Invalid value for 'input_file_id': there is no file '${plan.inputFileId}' of the purpose 'batch'.`;
      return refuse(new ApiError('invalid_value', message, { param: 'input_file_id' }));
    }
    if (this.#store.activeIds().length >= MAX_ACTIVE) {
      const message = `You have ${MAX_ACTIVE} batches that are not over, which is the most.`;
      return refuse(new ApiError('queue_full', message, { retryAfterSeconds: RETRY_AFTER_SECONDS }));
    }
    const now = Date.now();
    const { fileLifetimeMs } = this.#settings;
    const batch: BatchRecord = {
      ...{ id: `batch_${crypto.randomUUID().replaceAll('-', '')}`, tenant: plan.tenant, keyId: plan.keyId },
      ...{ endpoint: plan.endpoint, metadata: plan.metadata },
      ...{ inputFileId: plan.inputFileId, outputFileId: undefined, errorFileId: undefined, errors: [], state: 'validating' },
      ...{ total: 0, completed: 0, failed: 0, promptTokens: 0, cachedTokens: 0, completionTokens: 0, scannedBytes: 0, scannedLines: 0 },
      ...{ createdAt: now, expiresAt: now + COMPLETION_WINDOW_MS, times: { validating: now } },
      outputLifetimeMs: Math.min(plan.outputLifetimeMs ?? fileLifetimeMs, fileLifetimeMs),
    };
    this.#store.put(batch);
    this.#store.trim(MAX_ENDED);
    await this.#armAlarm();
    void this.#runner.wake();
    return { value: batch };
  }

  find(id: string): BatchRecord | undefined {
    // Should the alarm have been given up, whoever asks sets it going again.
    void this.#runner.wake();
    return this.#store.find(id);
  }

  list(range: ListRange): BatchRecord[] {
    return this.#store.list({ ...range, limit: range.limit + 1 });
  }

  /** Undefined for a batch that there is not. */
  async cancel(id: string): Promise<Reply<BatchRecord | undefined>> {
    const batch = this.#store.find(id);
    if (batch === undefined) return { value: undefined };
    if (!this.#runner.cancel(batch)) {
      return refuse(new ApiError('invalid_value', `The batch cannot be cancelled: its status is '${batch.state}'.`));
    }
    void this.#runner.wake();
    return { value: batch };
  }

  override async alarm(): Promise<void> {
    this.#prune();
    await Promise.race([this.#runner.wake(), pause(ALARM_STAY_MS)]);
    if (this.#runner.runningCount > 0) await pause(ALARM_STAY_MS);
    await this.#armAlarm();
  }

  /** Files and batches are gone. */
  async erase(): Promise<void> {
    this.#runner.stop();
    await this.ctx.storage.deleteAlarm();
    await this.ctx.storage.deleteAll();
    [this.#files, this.#store, this.#runner] = this.#open();
  }

  #open(): [FileStore, BatchStore, BatchRunner] {
    const { sql } = this.ctx.storage;
    const files = new FileStore(sql);
    const store = new BatchStore(sql);
    const runner = new BatchRunner({
      ...{ store, files, settings: this.#settings, log, clock: Date.now },
      execute: (call, signal) => this.#lines.execute(call, signal),
    });
    return [files, store, runner];
  }

  #content(id: string): Response {
    const file = this.#files.find(id);
    if (file === undefined) throw new ApiError('not_found', `There is no file '${id.slice(0, 128)}'.`);
    let at = 0;
    const body = new ReadableStream<Uint8Array>({
      pull: controller => {
        const piece = this.#files.chunkFrom(id, at);
        if (piece === undefined) return controller.close();
        at += piece.length;
        controller.enqueue(piece);
      },
    });
    return new Response(body, {
      headers: { 'content-length': String(file.bytes), 'content-type': 'application/octet-stream', 'x-content-type-options': 'nosniff' },
    });
  }

  #prune(): void {
    const now = Date.now();
    const inUse = new Set(this.#store.active().flatMap(batch => [batch.inputFileId, batch.outputFileId, batch.errorFileId]));
    this.#files.prune(now, id => inUse.has(id));
    this.#store.prune(now - this.#settings.fileLifetimeMs - COMPLETION_WINDOW_MS);
  }

  async #armAlarm(): Promise<void> {
    const now = Date.now();
    if (this.#store.activeIds().length > 0) return await this.ctx.storage.setAlarm(now + ALARM_MS);
    const nextExpiry = this.#files.nextExpiry ?? (this.#store.isEmpty ? undefined : now + LOOK_MS);
    if (nextExpiry !== undefined) await this.ctx.storage.setAlarm(Math.max(now + PRUNE_MS, nextExpiry));
  }
}

function refuse(error: ApiError): { refused: RefusedCall } {
  return { refused: plainError(error) };
}

function pause(ms: number): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, ms));
}

function log(line: Record<string, unknown>): void {
  console.log(JSON.stringify({ at: new Date().toISOString(), ...line }));
}
