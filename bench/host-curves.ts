/**
 * HostCurves: the service curves of this host for a model: measured with the product's own engine and then with the whole product, and kept, so that
 * the next plan need not wait for them.
 */
import { createHash } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { rowCountFor } from '../batcher/batcher-scheduler.ts';
import { replaceFile } from '../batcher/model/atomic-file.ts';
import { defaultCacheRoot } from '../batcher/model/cache-root.ts';
import { loadChat } from '../batcher/model/chat-template.ts';
import { engineOptions } from '../batcher/model/engine-options.ts';
import type { EngineCurves } from '../planner/curve-measurement.ts';
import { PlanningError } from '../planner/planning-error.ts';
import { readServiceCurves, type ServiceCurves } from '../planner/service-curves.ts';
import type { BatcherOut, ListOut } from '../shared/admin-wire.ts';
import type { BenchRun } from './bench.ts';
import type { CurvesTask } from './engine-curves.ts';
import { readHost } from './host.ts';
import type { BenchModel } from './model.ts';
import { readText } from './passages.ts';
import { measurePath } from './path-cost.ts';
import { batcherArguments, type PlanSettings } from './plan-settings.ts';
import { type Stack, startStack } from './stack.ts';
import { StepLogReader } from './step-log-reader.ts';
import { inTemporaryFolder } from './temporary-folder.ts';

type CurvesWish = Pick<PlanSettings, 'host' | 'threads' | 'kernels' | 'max-running' | 'max-batched-tokens' | 'itl-slo'>;

/** Of a file, which needs no model here; else of this host: measured anew, or as kept from the last time. */
export async function wantedCurves(
  wish: CurvesWish,
  openModel: () => Promise<BenchModel>,
  run: Pick<BenchRun, 'progress' | 'children'>,
): Promise<ServiceCurves> {
  if (wish.host !== '' && wish.host !== 'measured') return await readServiceCurves(wish.host);
  const { progress } = run;
  const model = await openModel();
  const path = keptPath(wish, model);
  if (wish.host === '') {
    const kept = await readServiceCurves(path).catch(error => {
      if (error instanceof PlanningError) return undefined;
      throw error;
    });
    if (kept !== undefined) {
      progress(`service curves of ${kept.measuredAt} (${path}); --host measured measures them anew`);
      return kept;
    }
  }
  const curves = await measure(wish, model, run);
  await mkdir(dirname(path), { recursive: true });
  await replaceFile(path, `${JSON.stringify(curves, undefined, 1)}\n`);
  progress(`service curves: ${path}`);
  return curves;
}

/** Whatever changes the times is part of the name. */
function keptPath(wish: CurvesWish, { name, manifest }: BenchModel): string {
  const { threads, kernels, 'max-running': maxRunning, 'max-batched-tokens': maxBatchedTokens } = wish;
  const key = createHash('sha256')
    .update(JSON.stringify([manifest, readHost().cpuModel, maxBatchedTokens]))
    .digest('hex')
    .slice(0, 12);
  return join(defaultCacheRoot(), 'service-curves', `${name}-${key}-${threads}-threads-${maxRunning}-rows-${kernels}.json`);
}

async function measure(
  wish: CurvesWish,
  model: BenchModel,
  { progress, children }: Pick<BenchRun, 'progress' | 'children'>,
): Promise<ServiceCurves> {
  progress("measuring this host's service curves; two minutes");
  const { threads, 'max-running': maxRunning, 'max-batched-tokens': maxBatchedTokens } = wish;
  const task: CurvesTask = { engine: engineOptions(model, { threads, rowCount: rowCountFor(maxRunning) }), maxRunning, maxBatchedTokens };
  const program = new URL('./engine-curves.ts', import.meta.url).pathname;
  const engine = JSON.parse((await children.run(process.execPath, [program, JSON.stringify(task)])).stdout) as EngineCurves;
  return await inTemporaryFolder(async folder => {
    const stepLogPath = join(folder, 'steps.jsonl');
    await using stack = await startStack({
      model,
      threads,
      // As they are simulated.
      batcherArguments: [...batcherArguments(wish), '--speculation', 'off', '--step-log', stepLogPath],
      progress,
      children,
    });
    const host = readHost();
    const card = await onlyBatcher(stack);
    const room = { contextTokens: card.context_tokens, kvTokens: card.kv_capacity_tokens };
    const template = await templateTokens(model);
    const { path, copyMsPerToken } = await measurePath({
      ...{ stack, stepLog: new StepLogReader(stepLogPath), text: await readText(), maxRunning, curves: engine, progress },
    });
    return {
      ...{ version: 3, host: `${host.cpuModel}, ${host.coreCount} cores`, model: model.name, threads },
      ...{ measuredAt: new Date().toISOString(), ...room, ...engine, copyMsPerToken, path, templateTokens: template },
    };
  });
}

async function onlyBatcher({ target }: Stack): Promise<BatcherOut> {
  const response = await fetch(`${target.baseUrl.replace(/\/v1$/, '')}/admin/batchers`, {
    headers: { authorization: `Bearer ${target.apiKey}` },
  });
  const { data } = (await response.json()) as ListOut<BatcherOut>;
  const [batcher] = data.filter(one => one.state === 'serving');
  if (batcher === undefined) throw new Error('the batcher is not serving');
  return batcher;
}

/** With which every chat begins. */
async function templateTokens(model: BenchModel): Promise<number> {
  const { template } = await loadChat(model);
  const [a, b] = ['One', 'Two'].map(content => template.renderChat([{ role: 'user', content }]));
  return a!.findIndex((tokenId, index) => tokenId !== b![index]);
}
