/**
 * QuickTier: a batcher's part for what needs no row: a queue of its own, read whether there are free rows or not, and a thread of its own.
 *
 *   quick queue → intake → jobs ⇄ service ⇄ thread
 *                           └──▶ outbox
 */
import type { Logger } from 'pino';
import { QUICK_QUEUE } from '../../shared/keys.ts';
import { Intake } from '../intake.ts';
import type { Outbox } from '../outbox.ts';
import { requestNames } from '../request-line.ts';
import { Room } from '../room.ts';
import type { BatcherSettings } from '../settings.ts';
import { QuickJobs } from './quick-jobs.ts';
import { QuickService } from './quick-service.ts';

export interface QuickTierOptions {
  settings: Pick<BatcherSettings, 'modelDirectory' | 'redisUrl' | 'batcherId' | 'lockMs' | 'maxAttempts'> &
    Partial<Pick<BatcherSettings, 'toolFormat'>>;
  model: string;
  contextTokens: number;
  outbox: Outbox;
  clock(): number;
  log: Logger;
  onAnswered?(kind: string, ms: number): void;
}

export class QuickTier {
  readonly #service: QuickService;
  readonly #jobs: QuickJobs;
  readonly #intake: Intake;

  constructor(options: QuickTierOptions) {
    const { settings, model, contextTokens, outbox, clock, log, onAnswered } = options;
    const { modelDirectory, redisUrl, batcherId, lockMs, maxAttempts, toolFormat } = settings;
    this.#service = new QuickService({ modelDirectory, contextTokens, toolFormat });
    this.#jobs = new QuickJobs({
      ask: question => this.#service.ask(question),
      outbox,
      maxAttempts,
      clock,
      ...(onAnswered !== undefined && { onAnswered }),
      onError: (error, job) => log.error({ ...requestNames(job), error: error.message }, 'request failed'),
    });
    const room = new Room(() => this.#jobs.hasRoom);
    this.#intake = new Intake({
      ...{ redisUrl, model, batcherId, lockMs },
      queueNames: [QUICK_QUEUE],
      room: () => room.wait(),
      take: taken => void this.#jobs.submit(taken).then(() => room.changed()),
      lost: jobId => this.#jobs.lost(jobId),
      failed: error => log.warn({ error: error.message }, 'quick queue'),
    });
  }

  /** Jobs taken and not settled. */
  get count(): number {
    return this.#jobs.count;
  }

  async start(): Promise<void> {
    await this.#intake.start();
  }

  stopTaking(): void {
    this.#intake.stopTaking();
  }

  /** What is still asked fails, and goes back to the queue. */
  async close(): Promise<void> {
    await this.#service.close();
    await this.#jobs.idle();
    await this.#intake.close();
  }
}
