/**
 * BatchRunner: brings a tenant's batches to their ends: looks through their inputs, has their lines done, a bounded number at a time and the
 * oldest batch first, and writes down each result in the same breath in which its line leaves. What is in memory here may be lost at any
 * moment: a line without a result is done again, and the gateway gives it the answer that it had.
 *
 *   validating ──▶ in_progress ──▶ finalizing ──▶ completed        (validating ──▶ failed)
 *                      ├── cancel ──▶ cancelling ──▶ cancelled
 *                      └── its time is over ──▶ expired
 */
import { type BatchEndpoint, isFault, parseLine } from './batch-input.ts';
import { BatchOutput, type LineAnswer } from './batch-output.ts';
import { ofAll, scanInput } from './batch-scan.ts';
import type { BatchLine, BatchRecord, BatchState, BatchStore } from './batch-store.ts';
import type { FileStore } from './file-store.ts';
import { LineWindow } from './line-window.ts';

/** A line as it is to be done. */
export interface LineCall {
  tenant: string;
  keyId: string;
  endpoint: BatchEndpoint;
  body: Record<string, unknown>;
  /** The same for the same line, however often it is tried. */
  idempotencyKey: string;
}

export type LineResult =
  | ({ outcome: 'answered' } & LineAnswer)
  /** Another try later may do better. */
  | { outcome: 'later'; afterMs: number | undefined };

export interface BatchRunnerOptions {
  store: BatchStore;
  files: FileStore;
  settings: { batchWindow: number; maxBodyBytes: number; maxStoredBytes: number };
  /** Never throws. `signal`: the result is wanted no more. */
  execute(call: LineCall, signal: AbortSignal): Promise<LineResult>;
  clock(): number;
  log(line: Record<string, unknown>): void;
}

/** A line that our fault ends is tried so often. */
const MAX_TRIES = 3;
/** Lines without a result that are written down as such before others get their turn. */
const UNDONE_SLICE = 500;

/** Lines of one batch that are under way. */
interface Running {
  numbers: Set<number>;
  stop: AbortController;
}

export class BatchRunner {
  readonly #options: BatchRunnerOptions;
  readonly #output: BatchOutput;
  readonly #window: LineWindow;
  readonly #running = new Map<string, Running>();
  /** Tries of lines that failed by our fault, by batch and number. */
  readonly #tries = new Map<string, number>();
  #turn: Promise<void> | undefined;
  #isAskedAgain = false;

  constructor(options: BatchRunnerOptions) {
    this.#options = options;
    this.#output = new BatchOutput(options);
    this.#window = new LineWindow(options.settings.batchWindow);
  }

  /** Lines under way. */
  get runningCount(): number {
    return this.#window.runningCount;
  }

  /** There may be something to do. Resolves when all that can be done at once is done or under way. */
  wake(): Promise<void> {
    this.#isAskedAgain = true;
    this.#turn ??= this.#turns();
    return this.#turn;
  }

  /** Lines under way are stopped, and no more are begun. False for a batch that is over. */
  cancel(batch: BatchRecord): boolean {
    if (batch.state === 'validating' || batch.state === 'in_progress') this.#enter(batch, 'cancelling');
    return batch.state === 'cancelling';
  }

  /** All lines under way are: their batches are gone. */
  stop(): void {
    for (const { stop } of this.#running.values()) stop.abort();
  }

  async #turns(): Promise<void> {
    // Not before it is known as the turn under way.
    await undefined;
    try {
      while (this.#isAskedAgain) {
        this.#isAskedAgain = false;
        for (const id of this.#options.store.activeIds()) await this.#advance(id);
      }
    } finally {
      this.#turn = undefined;
    }
  }

  /** As far as it can be brought now. */
  async #advance(id: string): Promise<void> {
    for (;;) {
      const batch = this.#options.store.find(id);
      if (batch === undefined || !this.#step(batch)) return;
      // Other requests of the tenant's are waiting.
      await new Promise(resolve => setTimeout(resolve, 0));
    }
  }

  /** False when something must happen first. */
  #step(batch: BatchRecord): boolean {
    const isLate = this.#options.clock() >= batch.expiresAt;
    switch (batch.state) {
      case 'validating':
        this.#scan(batch);
        return true;
      case 'in_progress':
        return isLate ? this.#windUp(batch) : this.#fill(batch);
      case 'cancelling':
        return this.#windUp(batch);
      case 'finalizing':
        this.#end(batch, 'completed');
        return true;
      default:
        return false;
    }
  }

  #scan(batch: BatchRecord): void {
    const { files, store, settings } = this.#options;
    const outcome = scanInput(batch, { files, store, maxLineBytes: settings.maxBodyBytes });
    if (outcome === 'more') {
      store.put(batch);
    } else if (outcome === 'sound') {
      this.#enter(batch, 'in_progress');
    } else {
      batch.total = 0;
      store.removeLines(batch.id);
      this.#enter(batch, 'failed');
    }
  }

  /** Begins as many lines as there is room for. True when there are none any more. */
  #fill(batch: BatchRecord): boolean {
    const { store, clock } = this.#options;
    const running = this.#running.get(batch.id)?.numbers ?? new Set();
    const room = this.#window.room(clock());
    const left = store.linesLeft(batch.id, running.size + Math.max(1, room));
    if (left.length === 0) {
      this.#enter(batch, 'finalizing');
      return true;
    }
    const next = left.filter(({ number }) => !running.has(number)).slice(0, room);
    for (const line of next) void this.#do(batch, line);
    return false;
  }

  async #do(batch: BatchRecord, line: BatchLine): Promise<void> {
    const { files, execute, clock } = this.#options;
    const { id, tenant, keyId, endpoint, inputFileId } = batch;
    const running = this.#running.get(id) ?? { numbers: new Set(), stop: new AbortController() };
    this.#running.set(id, running);
    running.numbers.add(line.number);
    this.#window.begin(clock());
    const parsed = parseLine(new TextDecoder().decode(files.read(inputFileId, line.at, line.bytes)), line.number, endpoint);
    // It was looked through before, and inputs do not change.
    const body = isFault(parsed) ? {} : parsed.body;
    const call = { tenant, keyId, endpoint: endpoint as BatchEndpoint, body, idempotencyKey: `${id}-${line.number}` };
    const result = await execute(call, running.stop.signal);
    running.numbers.delete(line.number);
    if (running.numbers.size === 0) this.#running.delete(id);
    if (result.outcome === 'answered') {
      this.#window.answered();
      if (!running.stop.signal.aborted || result.status < 400) this.#answered(id, line, result);
    } else {
      this.#window.refused(clock(), result.afterMs);
      setTimeout(() => void this.wake(), this.#window.triedAgainAt - clock());
    }
    void this.wake();
  }

  #answered(id: string, line: BatchLine, answer: LineAnswer): void {
    const { store, settings, files, log } = this.#options;
    const batch = store.find(id);
    // Its tenant is gone.
    if (batch === undefined || !store.hasLine(id, line.number)) return;
    const name = `${id} ${line.number}`;
    const tries = (this.#tries.get(name) ?? 0) + 1;
    if (answer.status >= 500 && tries < MAX_TRIES) {
      this.#tries.set(name, tries);
      return;
    }
    this.#tries.delete(name);
    if (files.totalBytes + answer.body.length > settings.maxStoredBytes) {
      // It stays without a result.
      if (batch.state !== 'in_progress') return;
      batch.errors.push(
        ofAll('storage_full', "There is no room for more results among the tenant's files. Delete some, and ask for the rest again."),
      );
      log({ event: 'batch_storage_full', batchId: id });
      this.#enter(batch, 'cancelling');
      return;
    }
    this.#output.answer(batch, line, answer);
    store.removeLine(id, line.number);
    store.put(batch);
  }

  /** Stops what is under way, and writes down some of the lines that have no result; or the end, when there are none any more. */
  #windUp(batch: BatchRecord): boolean {
    const { store } = this.#options;
    const running = this.#running.get(batch.id);
    running?.stop.abort();
    if (running !== undefined) return false;
    const isCancelled = batch.state === 'cancelling';
    const left = store.linesLeft(batch.id, UNDONE_SLICE);
    for (const line of left) {
      this.#output.undone(batch, line, isCancelled ? 'batch_cancelled' : 'batch_expired');
      store.removeLine(batch.id, line.number);
    }
    if (left.length > 0) store.put(batch);
    else this.#end(batch, isCancelled ? 'cancelled' : 'expired');
    return true;
  }

  #end(batch: BatchRecord, end: 'completed' | 'cancelled' | 'expired'): void {
    this.#output.close(batch);
    this.#enter(batch, end);
    const { id: batchId, total, completed, failed } = batch;
    this.#options.log({ event: 'batch_ended', batchId, state: end, total, completed, failed });
  }

  #enter(batch: BatchRecord, state: BatchState): void {
    batch.state = state;
    batch.times[state] = this.#options.clock();
    this.#options.store.put(batch);
  }
}
