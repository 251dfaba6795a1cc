/**
 * EncoderBatcher: one embedding model on one accelerator, from queue to outbox: opens the parts, joins them, and takes them down in order.
 *
 *   intake → jobs → text queue ⇄ loop ⇄ engine
 *              └── publisher → outbox      quick tier      heartbeat
 */
import type { Logger } from 'pino';
import { type BatcherCard, CARD_VERSION } from '../../shared/batcher-card.ts';
import { SHARED_QUEUE } from '../../shared/keys.ts';
import type { OpenBatcher } from '../batcher.ts';
import { drain } from '../drain.ts';
import { Heartbeat } from '../heartbeat.ts';
import { Intake } from '../intake.ts';
import { serveMetrics } from '../metrics-server.ts';
import { loadEncoderVocabulary, openEncoder } from '../model/prepare-encoder.ts';
import { WordPiece } from '../model/word-piece.ts';
import { Outbox } from '../outbox.ts';
import { Publisher } from '../publisher.ts';
import { QuickTier } from '../quick/quick-tier.ts';
import { connectRedis } from '../redis.ts';
import { requestLine, requestNames } from '../request-line.ts';
import { Room } from '../room.ts';
import type { BatcherSettings } from '../settings.ts';
import { StepRates } from '../step-rates.ts';
import { Throughput } from '../throughput.ts';
import type { EmbeddingJob } from './embedding-job.ts';
import { EmbeddingJobs } from './embedding-jobs.ts';
import { EncoderLoop } from './encoder-loop.ts';
import { EncoderMetrics } from './encoder-metrics.ts';
import { OrtEncoder } from './ort-encoder.ts';
import { TextQueue } from './text-queue.ts';

/** Attention computes padding too, where texts of different lengths are in one run; it is a small part of all. */
const PLACES_PER_TOKEN = 4;

export async function openEncoderBatcher(settings: BatcherSettings, log: Logger): Promise<OpenBatcher> {
  const startedAt = Date.now();
  const { manifest, graphPath, directory } = await openEncoder(settings.modelDirectory);
  const { width, vocabSize, pooling, isNormalized } = manifest.shape;
  const contextTokens = Math.min(settings.contextTokens ?? manifest.shape.contextTokens, manifest.shape.positionCount);
  const tokenizer = new WordPiece(await loadEncoderVocabulary(directory));
  const engine = new OrtEncoder({
    graphPath,
    shape: { width, vocabSize, contextTokens },
    pooling,
    threads: settings.threads,
    // It runs beside a batcher that answers: between runs, and where one thread works for long, the others leave the processor to that.
    spinning: settings.spinning ?? 'brief',
  });
  // Epoch time as it was at the start, and from there on a clock that nobody sets.
  const clock = () => Math.round(performance.timeOrigin + performance.now());
  const rates = new StepRates();
  const throughput = new Throughput(clock());
  const queue = new TextQueue();
  const { maxBatchedTokens } = settings;
  const bounds = { tokens: maxBatchedTokens, places: Math.max(PLACES_PER_TOKEN * maxBatchedTokens, contextTokens) };

  const redis = connectRedis(settings.redisUrl);
  redis.on('error', error => log.warn({ error: error.message }, 'redis'));
  const outbox = new Outbox(redis);
  const publisher = new Publisher<EmbeddingJob>({
    outbox,
    onStanding: (job, standing) => jobs.stands(job, standing),
    onRecorded: (job, events) => jobs.recorded(job, events),
    onSettled: job => jobs.settled(job),
    onError: error => log.warn({ error: error.message }, 'events could not be sent; they are sent again'),
  });
  const room = new Room(() => jobs.hasRoom);
  const metrics = new EncoderMetrics(manifest.name, {
    runningCount: () => loop.runningCount,
    waitingCount: () => queue.jobCount,
    tokensPerSecond: () => rates.prefillTokensPerSecond,
  });
  const metricsServer = settings.metricsPort === undefined ? undefined : await serveMetrics(metrics.registry, settings.metricsPort);
  const jobs: EmbeddingJobs = new EmbeddingJobs({
    ...{ queue, outbox, publisher, tokenizer, contextTokens, width, clock },
    maxAttempts: settings.maxAttempts,
    wake: () => loop.wake(),
    onEnded: job => {
      metrics.ended(job, Math.max(0, clock() - job.job.submittedAt));
      log.info(requestLine(job, clock()), 'request ended');
      room.changed();
    },
    onError: (error, job) => log.error({ ...requestNames(job), error: error.message }, 'request failed'),
  });
  const loop: EncoderLoop = new EncoderLoop({
    ...{ engine, queue, publisher, rates, bounds, isNormalized },
    runFailed: (failed, error) => {
      for (const job of failed) {
        log.error({ ...requestNames(job.job), error: error.message }, 'request failed');
        jobs.fail(job, 'generation_failed', 'The model could not be run for this request.');
      }
    },
    onRun: tokens => {
      metrics.ran(tokens);
      throughput.prefilled(tokens);
      room.changed();
    },
  });
  const quick = new QuickTier({
    ...{ settings, model: manifest.name, contextTokens, outbox, clock, log },
    onAnswered: (kind, ms) => metrics.quickAnswered(kind, ms),
  });
  const intake = new Intake({
    redisUrl: settings.redisUrl,
    model: manifest.name,
    batcherId: settings.batcherId,
    queueNames: [SHARED_QUEUE],
    lockMs: settings.lockMs,
    room: () => room.wait(),
    take: taken => void jobs.submit(taken).then(() => room.changed()),
    lost: jobId => jobs.lost(jobId),
    failed: error => log.warn({ error: error.message }, 'queue'),
  });

  let state: BatcherCard['state'] = 'serving';
  const card = async (): Promise<BatcherCard> => ({
    version: CARD_VERSION,
    batcherId: settings.batcherId,
    model: manifest.name,
    contextTokens,
    tasks: ['embed', 'tokenize', 'detokenize'],
    dimensions: width,
    writtenAt: Date.now(),
    startedAt,
    state,
    runningCount: loop.runningCount,
    waitingCount: Math.max(0, jobs.count - loop.runningCount),
    // What stands before a tenant that comes now: a turn of each of those that are here.
    waitingTokens: Math.min(queue.pendingTokens, queue.tenantCount * maxBatchedTokens),
    maxRunningCount: settings.maxRunning,
    kvCapacityTokens: 0,
    kvUsedTokens: 0,
    prefillTokensPerSecond: rates.prefillTokensPerSecond,
    decodeTokensPerSecond: 0,
    ...throughput.read(clock()),
  });
  const drainAsked = Promise.withResolvers<void>();
  const heartbeat = new Heartbeat(redis, card, drainAsked.resolve);

  const running = loop.run();
  running.catch(error => {
    log.fatal({ error: (error as Error).stack }, 'the loop ended');
    process.exit(1);
  });
  await intake.start();
  await quick.start();
  await heartbeat.start();
  log.info({ model: manifest.name, threads: settings.threads, contextTokens, dimensions: width }, `embeddings of ${width} numbers`);
  log.info({ batcherId: settings.batcherId, openMs: Date.now() - startedAt }, 'serving');

  return {
    drainAsked: drainAsked.promise,
    async drain(): Promise<void> {
      state = 'draining';
      await drain({
        ...{ heartbeat, loop, running, publisher },
        takers: [intake, quick],
        openCount: () => jobs.count + quick.count,
        timeoutMs: settings.drainTimeoutMs,
        giveBackAll: () => jobs.giveBackAll(),
      });
      await heartbeat.stop();
      redis.disconnect();
      metricsServer?.close();
      engine.close();
    },
  };
}
