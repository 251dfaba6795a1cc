/**
 * Batcher: one model on one accelerator, from queue to outbox: opens the parts, joins them, and takes them down in order.
 *
 *   intake → generations → scheduler ⇄ loop ⇄ engine
 *                 └── publisher → outbox      heartbeat
 */
import { readFile } from 'node:fs/promises';
import type { Logger } from 'pino';
import { type BatcherCard, CARD_VERSION } from '../shared/batcher-card.ts';
import { TASK_KINDS } from '../shared/job.ts';
import { BLOCK_TOKENS, MAX_DRAFTS, openScheduler, REPRODUCIBLE_ROWS, rowCountFor, SPECULATION_ROWS } from './batcher-scheduler.ts';
import { drain } from './drain.ts';
import { kvBytesPerToken, OrtEngine } from './engine/ort-engine.ts';
import { EventRate } from './event-rate.ts';
import { Generations } from './generations.ts';
import { Heartbeat } from './heartbeat.ts';
import { HeldPrefixes } from './held-prefixes.ts';
import { Intake } from './intake.ts';
import type { KvCache } from './kv/kv-cache.ts';
import { kvBudget } from './kv-budget.ts';
import { Loop } from './loop.ts';
import { Metrics } from './metrics.ts';
import { serveMetrics } from './metrics-server.ts';
import { loadChat } from './model/chat-template.ts';
import { defaultKvType, graphPathOf, openPrepared } from './model/prepare.ts';
import { openScratch } from './open-scratch.ts';
import { Outbox } from './outbox.ts';
import { OwnQueues } from './own-queues.ts';
import { PrefixOutbox } from './prefix-outbox.ts';
import { PrefixPublisher } from './prefix-publisher.ts';
import { BranchMaker } from './prompt-branch.ts';
import { encodePrompt } from './prompt-encoder.ts';
import { publicPrefixTokens } from './public-prefix.ts';
import { Publisher } from './publisher.ts';
import { qualityText, readQualityLoss } from './quality/quality-loss.ts';
import { QuickTier } from './quick/quick-tier.ts';
import { closerTokenIdsOf, reasoningOf } from './reasoning/reasoning-syntax.ts';
import { connectRedis } from './redis.ts';
import { requestLine, requestNames } from './request-line.ts';
import { Room } from './room.ts';
import type { BatcherSettings } from './settings.ts';
import { Speculation } from './speculation.ts';
import { StepLog } from './step-log.ts';
import { StepRates } from './step-rates.ts';
import { StructuredOutput } from './structured/structured-output.ts';
import { Throughput } from './throughput.ts';

/** Expected gain below which drafts are not worth their uncertainty. */
const SPECULATION_GAIN = 1.05;

export interface OpenBatcher {
  /** Resolves when an operator asks this batcher to end; it may do so later than any other end. */
  readonly drainAsked: Promise<void>;
  /** Takes nothing new, lets what runs finish within the drain timeout, hands over the rest, and closes everything. */
  drain(): Promise<void>;
}

export async function openTextBatcher(settings: BatcherSettings, log: Logger): Promise<OpenBatcher> {
  const startedAt = Date.now();
  const model = await openPrepared(settings.modelDirectory);
  const { manifest, kernelPath } = model;
  const kvType = settings.kvType ?? defaultKvType(manifest);
  const { shape } = manifest;
  const { toolFormat, reasoningFormat } = settings;
  const { tokenizer, template } = await loadChat(model, { toolFormat, reasoningFormat });
  const { toolSyntax, reasoningSyntax } = template;
  const contextTokens = Math.min(settings.contextTokens ?? shape.contextTokens, shape.contextTokens);
  const rowCount = rowCountFor(settings.maxRunning);
  const budget = kvBudget({
    bytes: settings.kvMemoryBytes,
    availableBytes: process.availableMemory(),
    kvBytesPerToken: kvBytesPerToken(shape, kvType),
    blockTokens: BLOCK_TOKENS,
    contextTokens,
    rowCount,
  });
  const engine = new OrtEngine({
    graphPath: graphPathOf(model, kvType),
    kernelPath,
    kvType,
    model: shape,
    threads: settings.threads,
    spinning: settings.spinning ?? true,
    rowCount,
    contextTokens,
    blockTokens: BLOCK_TOKENS,
    storeBlocks: budget.blocks,
  });
  // Epoch time as it was at the start, and from there on a clock that nobody sets: deadlines and durations survive a jump.
  const clock = () => Math.round(performance.timeOrigin + performance.now());
  const rates = new StepRates();
  const throughput = new Throughput(clock());
  const speculation = settings.speculation
    ? new Speculation({ maxRows: SPECULATION_ROWS, maxDrafts: MAX_DRAFTS, minGain: SPECULATION_GAIN })
    : undefined;
  const held =
    settings.prefixDirectoryEntries === 0
      ? undefined
      : new HeldPrefixes({
          blockTokens: BLOCK_TOKENS,
          maxEntries: settings.prefixDirectoryEntries,
          maxClosed: rowCount + 64,
          tokenBytes: (tokenId, controlTokens) => tokenizer.tokenBytes(tokenId, controlTokens),
          pathTokenIds: blockId => kv.pathTokenIds(blockId),
          onChanged: () => prefixPublisher?.changed(),
        });
  const { maxRunning, maxBatchedTokens, stepLogPath } = settings;
  const stepLog = stepLogPath === undefined ? undefined : await StepLog.open(stepLogPath, BLOCK_TOKENS);
  const opened = openScheduler({ maxRunning, maxBatchedTokens, contextTokens, budgetBlocks: budget.blocks, clock, listener: held });
  const { scheduler } = opened;
  const kv: KvCache = opened.kv;
  for (const path of settings.publicPrefixPaths) kv.approvePublicPrefix(publicPrefixTokens(await readFile(path, 'utf8'), template));

  const metrics = new Metrics(manifest.name, {
    runningCount: () => scheduler.runningCount,
    waitingCount: () => scheduler.waitingCount,
    preemptionCount: () => scheduler.preemptionCount,
    kvUsage: () => scheduler.kvUsage,
    kvResidentBytes: () => engine.kvResidentBytes(),
    prefillTokensPerSecond: () => rates.prefillTokensPerSecond,
    decodeTokensPerSecond: () => rates.decodeTokensPerSecond,
  });
  const qualityLoss = manifest.quality === 'fast' ? await readQualityLoss(settings.modelDirectory) : undefined;
  if (qualityLoss !== undefined) {
    metrics.qualityMeasured(qualityLoss);
    log.info({ model: manifest.name, ...qualityLoss }, `quality fast: ${qualityText(qualityLoss)}`);
  }
  const metricsServer = settings.metricsPort === undefined ? undefined : await serveMetrics(metrics.registry, settings.metricsPort);

  const redis = connectRedis(settings.redisUrl);
  redis.on('error', error => log.warn({ error: error.message }, 'redis'));
  const outbox = new Outbox(redis);
  const publisher = new Publisher({
    outbox,
    onStanding: (generation, standing) => generations.stands(generation, standing),
    onRecorded: (generation, events) => generations.recorded(generation, events),
    onSettled: generation => generations.settled(generation),
    onError: error => log.warn({ error: error.message }, 'events could not be sent; they are sent again'),
  });
  const prefixPublisher =
    held &&
    new PrefixPublisher({
      batcherId: settings.batcherId,
      held,
      outbox: new PrefixOutbox(redis),
      clock,
      onError: error => log.warn({ error: error.message }, 'prefixes could not be told; they are told again'),
    });
  const structuredOutput = new StructuredOutput(tokenizer);
  const room = new Room(() => scheduler.waitingCount + generations.arrivingCount < Math.max(1, settings.prefetch));
  const generations: Generations = new Generations({
    scheduler,
    outbox,
    publisher,
    encodePrompt: prompt => encodePrompt(prompt, { tokenizer, template }),
    branchMaker: new BranchMaker(tokenizer, {
      scratch: openScratch(shape.vocabSize, kernelPath),
      toolSyntax,
      closerTokenIds: closerTokenIdsOf(reasoningSyntax, text => tokenizer.encodeText(text)),
    }),
    grammarOf: form => structuredOutput.grammarOf(form),
    toolSyntax,
    reasoningOf: prompt => reasoningOf(prompt, reasoningSyntax, id => tokenizer.tokenBytes(id, 'spelled')),
    prefixes: held,
    contextTokens,
    maxAttempts: settings.maxAttempts,
    // Kernels that give the same bits anyway need no care.
    reproducible: settings.reproducible && !manifest.isBatchInvariant,
    ttftSloMs: settings.ttftSloMs,
    clock,
    wake: () => loop.wake(),
    onSequenceLeft: sequenceId => speculation?.ended(sequenceId),
    onEnded: generation => {
      const { endReason, usage, timings, job } = generation;
      metrics.ended({ reason: endReason ?? 'stop', usage, timings, e2eMs: Math.max(0, clock() - job.submittedAt) });
      log.info(requestLine(generation, clock()), 'request ended');
    },
    onError: (error, job) => log.error({ ...requestNames(job), error: error.message }, 'request failed'),
  });
  const loop = new Loop({
    engine,
    scheduler,
    publisher,
    rates,
    speculation,
    find: sequenceId => generations.find(sequenceId),
    runFailed: (sequenceIds, error) => generations.runFailed(sequenceIds, error),
    reproducibleRows: REPRODUCIBLE_ROWS,
    itlSloMs: settings.itlSloMs,
    onStep: (plan, times) => {
      metrics.step(plan, times);
      stepLog?.add(plan, times);
      for (const { purpose, tokenIds } of plan.chunks) if (purpose !== 'verify') throughput.prefilled(tokenIds.length);
      room.changed();
    },
    onVerified: (draftTokens, acceptedTokens) => metrics.draftVerified(draftTokens, acceptedTokens),
    onToken: sinceLastMs => {
      metrics.tokenSampled(sinceLastMs);
      throughput.generated(sinceLastMs);
    },
  });
  const requests = new EventRate(clock);
  let state: BatcherCard['state'] = 'serving';
  const card = async (): Promise<BatcherCard> => {
    const ownQueueCount = await ownQueues.waitingCount();
    const usage = scheduler.kvUsage;
    return {
      version: CARD_VERSION,
      batcherId: settings.batcherId,
      model: manifest.name,
      contextTokens,
      tasks: TASK_KINDS.filter(kind => kind !== 'embed'),
      writtenAt: Date.now(),
      startedAt,
      state,
      runningCount: scheduler.runningCount,
      waitingCount: scheduler.waitingCount,
      waitingTokens: scheduler.waitingTokens,
      ownQueueCount,
      maxRunningCount: settings.maxRunning,
      requestsPerSecond: requests.perSecond,
      kvCapacityTokens: budget.tokens,
      kvUsedTokens: (usage.budgetBlocks - usage.freeBlocks - usage.evictableBlocks) * BLOCK_TOKENS,
      prefillTokensPerSecond: rates.prefillTokensPerSecond,
      decodeTokensPerSecond: rates.decodeTokensPerSecond,
      ...throughput.read(clock()),
    };
  };
  const drainAsked = Promise.withResolvers<void>();
  const ownQueues: OwnQueues = new OwnQueues({
    redis,
    model: manifest.name,
    batcherId: settings.batcherId,
    onOrphans: batcherIds => void intake.adopt(batcherIds),
    failed: error => log.warn({ error: error.message }, 'queues of other batchers'),
  });
  const heartbeat = new Heartbeat(redis, card, drainAsked.resolve);
  const intake: Intake = new Intake({
    redisUrl: settings.redisUrl,
    model: manifest.name,
    batcherId: settings.batcherId,
    lockMs: settings.lockMs,
    room: () => room.wait(),
    take: taken => {
      requests.happened();
      void generations.submit(taken).then(() => room.changed());
    },
    lost: jobId => generations.lost(jobId),
    failed: error => log.warn({ error: error.message }, 'queue'),
  });

  const quick = new QuickTier({
    settings,
    model: manifest.name,
    contextTokens,
    outbox,
    clock,
    log,
    onAnswered: (kind, ms) => metrics.quickAnswered(kind, ms),
  });

  const running = loop.run();
  running.catch(error => {
    log.fatal({ error: (error as Error).stack }, 'the loop ended');
    process.exit(1);
  });
  await intake.start();
  await quick.start();
  await heartbeat.start();
  await ownQueues.start();
  prefixPublisher?.start();
  log.info(
    {
      model: manifest.name,
      threads: settings.threads,
      contextTokens,
      kvTokens: budget.tokens,
      kvBytes: budget.bytes,
      fullSequences: budget.fullSequences,
    },
    `KV cache of ${budget.tokens} tokens: ${budget.fullSequences} sequences of ${contextTokens} tokens`,
  );
  log.info(
    {
      batcherId: settings.batcherId,
      toolFormat: toolSyntax.format,
      reasons: reasoningSyntax !== undefined,
      openMs: Date.now() - startedAt,
    },
    'serving',
  );

  return {
    drainAsked: drainAsked.promise,
    async drain(): Promise<void> {
      state = 'draining';
      await drain({
        ...{ heartbeat, loop, running, publisher },
        takers: [intake, quick],
        openCount: () => generations.count + quick.count,
        timeoutMs: settings.drainTimeoutMs,
        giveBackAll: () => generations.giveBackAll(),
      });
      await ownQueues.stop();
      await prefixPublisher?.stop();
      await heartbeat.stop();
      redis.disconnect();
      metricsServer?.close();
      await stepLog?.close();
      await structuredOutput.close();
      engine.close();
    },
  };
}
