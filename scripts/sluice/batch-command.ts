/** BatchCommand: `sluice batch`: sends a file of requests, shows how far they are, and brings the answers; `sluice batches`: those there are. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { ProgressLine } from '../progress-line.ts';
import { type Batch, BatchRun, fetchResults, isOver, sendBatch } from './batch-run.ts';
import { CommandError } from './command-error.ts';
import { gatewayCall } from './gateway-call.ts';
import type { GatewayTarget, KeyUse } from './gateway-target.ts';
import { table } from './table.ts';

const ENDPOINTS = ['/v1/chat/completions', '/v1/completions', '/v1/embeddings', '/v1/responses'];
const BATCH_ID = /^batch_\w+$/;
const INTERRUPTED = 130;

interface About {
  targetOf(use: KeyUse): GatewayTarget;
  print(reply: unknown, words: string): void;
}

export function addBatches(program: Command, about: About): void {
  addBatch(program, about);
  const batches = program.command('batches').description('batches of a tenant');
  batches
    .command('list')
    .description('the newest first')
    .option('--limit <count>', 'how many', count, 20)
    .action(async ({ limit }: { limit: number }) => {
      const reply = await gatewayCall(about.targetOf('tenant'), '/v1')<{ data: Batch[] }>('GET', `/batches?limit=${limit}`);
      about.print(reply, batchTable(reply.data));
    });
  batches
    .command('cancel')
    .description('stops one; what is done stays')
    .argument('<id>')
    .action(async (id: string) => {
      const batch = await gatewayCall(about.targetOf('tenant'), '/v1')<Batch>('POST', `/batches/${encodeURIComponent(id)}/cancel`);
      about.print(batch, `Batch ${batch.id} is being cancelled.`);
    });
}

function addBatch(program: Command, { targetOf, print }: About): void {
  program
    .command('batch')
    .description('has the requests of a JSONL file done when there is room for them, and fetches the answers')
    .argument('<file>', 'one request a line; or the id of a batch that was begun before')
    .addOption(new Option('--endpoint <path>', 'where they all go (default: what the first line says)').choices(ENDPOINTS))
    .option('--output <file>', 'for the answers (default: FILE.output.jsonl)')
    .option('--errors <file>', 'for the requests without one (default: FILE.errors.jsonl)')
    .option('--detach', 'do not wait for the end')
    .action(async (file: string, options: { endpoint?: string; output?: string; errors?: string; detach?: true }) => {
      const target = targetOf('tenant');
      const isId = BATCH_ID.test(file) && !existsSync(file);
      if (!isId && !existsSync(file)) throw new CommandError(`There is no file ${file}.`, 2);
      let batch = isId
        ? await gatewayCall(target, '/v1')<Batch>('GET', `/batches/${file}`)
        : await sendBatch(target, file, options.endpoint);
      if (options.detach === true) return print(batch, `${batch.id}\nIts answers: npx sluice batch ${batch.id}`);
      if (!isOver(batch)) batch = await watch(target, batch);
      if (!isOver(batch)) return;
      const stem = file.replace(/\.jsonl$/, '');
      const paths = { output: options.output ?? `${stem}.output.jsonl`, errors: options.errors ?? `${stem}.errors.jsonl` };
      const written = await fetchResults(target, batch, paths);
      print(batch, [endText(batch), ...written.map(path => `  ${join('.', path)}`)].join('\n'));
      if (batch.status !== 'completed' || batch.request_counts.failed > 0) process.exitCode = 1;
    });
}

/** Until it is over, or until Ctrl-C, after which it goes on without us. */
async function watch(target: GatewayTarget, batch: Batch): Promise<Batch> {
  const stop = new AbortController();
  const interrupt = () => stop.abort();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, interrupt);
  using line = new ProgressLine(process.stderr);
  const last = await new BatchRun(target, batch).watch(stop.signal, ({ done, total, label }) =>
    // Elsewhere than in a terminal each label would be a line of its own.
    line.show(done, total, process.stderr.isTTY ? label : batch.id),
  );
  line.clear();
  if (!isOver(last)) {
    process.exitCode = INTERRUPTED;
    process.stderr.write(
      `Batch ${batch.id} goes on at the gateway.\nCome back to it: npx sluice batch ${batch.id}\nStop it:         npx sluice batches cancel ${batch.id}\n`,
    );
  }
  return last;
}

function endText({ id, status, request_counts: { total, completed, failed }, errors, usage }: Batch): string {
  const faults = (errors?.data ?? []).map(({ line, message }) => `  ${line === null ? '' : `line ${line}: `}${message}`);
  const tokens = `${usage.input_tokens.toLocaleString('en-US')} prompt tokens, ${usage.output_tokens.toLocaleString('en-US')} answer tokens`;
  const counts = status === 'failed' ? '' : `: ${completed} of ${total} answered${failed > 0 ? `, ${failed} not` : ''}; ${tokens}`;
  return [`Batch ${id} is ${status}${counts}`, ...faults].join('\n');
}

function batchTable(batches: readonly Batch[]): string {
  const rows = batches.map(({ id, endpoint, status, created_at, request_counts: { total, completed, failed } }) => [
    ...[id, endpoint, status, new Date(created_at * 1000).toISOString().slice(0, 16).replace('T', ' ')],
    ...[total, completed, failed],
  ]);
  return table(['BATCH', 'ENDPOINT', 'STATUS', 'SINCE (UTC)', 'REQUESTS', 'ANSWERED', 'FAILED'], rows, 'No batches.');
}

function count(text: string): number {
  if (/^\d+$/.test(text) && Number(text) >= 1 && Number(text) <= 100) return Number(text);
  throw new InvalidArgumentError('It must be a whole number from 1 to 100.');
}
