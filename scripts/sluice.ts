/** Sluice: `npx sluice`: a chat and batches in the terminal, and keys, tenants, usage and batchers by the admin calls; --json for programs. */
import { Command, Option } from 'commander';
import type { BatcherOut, KeyOut, ListOut, TenantOut, UsageOut } from '../shared/admin-wire.ts';
import { addBatches } from './sluice/batch-command.ts';
import { addChat } from './sluice/chat-command.ts';
import { CommandError } from './sluice/command-error.ts';
import { type GatewayCall, gatewayCall } from './sluice/gateway-call.ts';
import { gatewayTarget, type KeyUse } from './sluice/gateway-target.ts';
import { expiry, expiryIn, LIMIT_HEADINGS, limitCells, limitsIn, weight, withLimits } from './sluice/limit-options.ts';
import { addStatus } from './sluice/status-command.ts';
import { table } from './sluice/table.ts';
import { defaultDataFolder } from './supervisor/data-folder.ts';

const MOST_USAGE_ROWS = 10_000;
const PAGE = 100;

const program = new Command('npx sluice')
  .description('Uses and manages a Sluice gateway, and plans its capacity.')
  .option('--url <url>', 'the gateway (default: SLUICE_URL, else the one that npm start has started here)')
  .option(
    '--key-file <path>',
    'file that holds the key (default: SLUICE_API_KEY, for administration SLUICE_ADMIN_KEY, else the development key of npm start)',
  )
  .option('--data <folder>', 'data folder of npm start', defaultDataFolder(process.env))
  .option('--json', 'the reply as JSON')
  .showHelpAfterError('(npx sluice --help explains all commands)')
  // Commander's own exit codes: 1 for what was asked wrongly, which here is 2.
  .exitOverride(error => process.exit(error.exitCode === 0 ? 0 : 2));

const targetOf = (use: KeyUse) => gatewayTarget(program.opts(), process.env, use);
const isJson = () => program.opts().json === true;
addChat(program, targetOf);
addStatus(program, { targetOf, isJson });
addBatches(program, { targetOf, print });

const keys = program.command('keys').description('API keys of a tenant');
withLimits(
  keys
    .command('create')
    .description('makes a key, shown once; makes the tenant too when it is not there')
    .requiredOption('--tenant <name>', 'whose key it is')
    .option('--name <text>', 'for people')
    .addOption(new Option('--scope <scope...>', 'what it may do (default: infer)').choices(['infer', 'admin']))
    .option('--expires-in <time>', 'how long it is good, as 30d, 12h or 90m (default: for ever)', expiry),
).action(async options => {
  const { tenant, name, scope: scopes } = options;
  const body = { tenant, name, scopes, expires_at: expiryIn(options), limits: limitsIn(options) };
  const made = await call<KeyOut>('POST', '/keys', body);
  print(made, `${made.key}\n\nKey ${made.id} of tenant ${made.tenant}. It is shown this once and kept nowhere.`);
});
keys
  .command('list')
  .description('the keys of a tenant, without the keys themselves')
  .requiredOption('--tenant <name>', 'whose keys')
  .action(async ({ tenant }) => {
    const list = await call<ListOut<KeyOut>>('GET', `/keys?tenant=${encodeURIComponent(tenant)}`);
    print(list, keyTable(list.data));
  });
withLimits(
  keys
    .command('set')
    .description('changes a key; what is not named stays as it is')
    .argument('<id>', 'id of the key')
    .requiredOption('--tenant <name>', 'whose key it is')
    .option('--name <text>', 'for people')
    .addOption(new Option('--scope <scope...>', 'what it may do').choices(['infer', 'admin']))
    .option('--expires-in <time>', 'how long from now it is good, or never for no end', expiry),
).action(async (id, options) => {
  const { tenant, name, scope: scopes } = options;
  const changed = await call<KeyOut>('POST', `/keys/${encodeURIComponent(id)}`, {
    tenant,
    name,
    scopes,
    expires_at: expiryIn(options),
    limits: limitsIn(options),
  });
  print(changed, keyTable([changed]));
});
keys
  .command('revoke')
  .description('ends a key at once')
  .argument('<id>', 'id of the key')
  .requiredOption('--tenant <name>', 'whose key it is')
  .action(async (id, { tenant }) => {
    const revoked = await call<KeyOut>('DELETE', `/keys/${encodeURIComponent(id)}?tenant=${encodeURIComponent(tenant)}`);
    print(revoked, `Key ${revoked.id} of tenant ${revoked.tenant} is revoked.`);
  });

const tenants = program.command('tenants').description('tenants and their limits');
tenants
  .command('list')
  .description('all tenants')
  .action(async () => {
    const all = await allTenants();
    print({ object: 'list', data: all, has_more: false }, tenantTable(all));
  });
withLimits(
  tenants
    .command('set')
    .description('makes a tenant or changes its limits; what is not named stays as it is')
    .argument('<name>')
    .option('--weight <share>', 'share of the batchers while other tenants wait too, to theirs; 1 unless set', weight),
).action(async (name, options) => {
  const tenant = await call<TenantOut>('POST', '/tenants', { name, limits: limitsIn(options), weight: options.weight });
  print(tenant, tenantTable([tenant]));
});
tenants
  .command('delete')
  .description('takes a tenant away with its keys and its usage')
  .argument('<name>')
  .action(async name => {
    const gone = await call<{ name: string }>('DELETE', `/tenants/${encodeURIComponent(name)}`);
    print(gone, `Tenant ${gone.name} is gone, with its keys and its usage.`);
  });

program
  .command('usage')
  .description('what a tenant used, a day, key and model each')
  .requiredOption('--tenant <name>', 'whose usage')
  .option('--from <date>', 'first day in UTC, as 2026-01-31 (default: 29 days before the last)')
  .option('--to <date>', 'last day in UTC (default: today)')
  .action(async ({ tenant, from, to }) => {
    const query = new URLSearchParams({ tenant, limit: String(MOST_USAGE_ROWS), ...(from && { from }), ...(to && { to }) });
    const list = await call<ListOut<UsageOut>>('GET', `/usage?${query}`);
    const more = list.has_more ? `\nOnly the first ${MOST_USAGE_ROWS} rows; name a shorter time with --from and --to.` : '';
    print(list, usageTable(list.data) + more);
  });

const batchers = program.command('batchers').description('the processes that compute');
batchers
  .command('list')
  .description('all batchers')
  .action(async () => {
    const list = await call<ListOut<BatcherOut>>('GET', '/batchers');
    print(list, batcherTable(list.data));
  });
batchers
  .command('drain')
  .description('lets a batcher finish what it runs, and end')
  .argument('<id>', 'id of the batcher')
  .action(async id => {
    const asked = await call<BatcherOut>('POST', `/batchers/${encodeURIComponent(id)}/drain`);
    print(asked, `Batcher ${asked.id} is asked to drain: it takes nothing new, finishes what it runs, and ends.`);
  });

program
  .command('plan')
  .description('how much one accelerator serves under latency objectives, and how many a load needs (plan --help has the options)')
  .allowUnknownOption()
  .allowExcessArguments()
  .helpOption(false)
  .action(async (_, command: Command) => {
    // Built on this room, as the benches are, so that the compiler must not see an import the other way.
    const address = new URL('../bench/main.ts', import.meta.url).href;
    const { main } = (await import(address)) as { main(args: readonly string[]): Promise<number> };
    process.exit(await main(['capacity', ...(program.opts().json ? ['--json'] : []), ...command.args]));
  });

try {
  await program.parseAsync(process.argv.slice(2), { from: 'user' });
} catch (thrown) {
  if (!(thrown instanceof CommandError)) throw thrown;
  process.stderr.write(`error: ${thrown.message}\n`);
  process.exitCode = thrown.exitCode;
}

function call<T>(...request: Parameters<GatewayCall>): Promise<T> {
  return gatewayCall(targetOf('admin'), '/admin')<T>(...request);
}

async function allTenants(): Promise<TenantOut[]> {
  const all: TenantOut[] = [];
  for (let hasMore = true; hasMore; ) {
    const page = await call<ListOut<TenantOut>>('GET', `/tenants?limit=${PAGE}&after=${all.at(-1)?.name ?? ''}`);
    all.push(...page.data);
    hasMore = page.has_more && page.data.length > 0;
  }
  return all;
}

function print(reply: unknown, words: string): void {
  process.stdout.write(`${isJson() ? JSON.stringify(reply, undefined, 2) : words}\n`);
}

function keyTable(list: readonly KeyOut[]): string {
  const headings = ['KEY', 'NAME', 'STATE', 'SCOPES', ...LIMIT_HEADINGS];
  const rows = list.map(key => [key.id, key.name, stateOf(key), key.scopes.join(','), ...limitCells(key.limits)]);
  return table(headings, rows, 'No keys.');
}

function stateOf({ revoked_at, expires_at }: KeyOut): string {
  if (revoked_at !== null) return `revoked ${dateOf(revoked_at)}`;
  if (expires_at === null) return 'good';
  return expires_at * 1000 <= Date.now() ? `expired ${dateOf(expires_at)}` : `good until ${dateOf(expires_at)}`;
}

function tenantTable(list: readonly TenantOut[]): string {
  const rows = list.map(({ name, created_at, limits, weight }) => [
    name,
    created_at === null ? null : dateOf(created_at),
    weight,
    ...limitCells(limits),
  ]);
  return table(['TENANT', 'SINCE', 'WEIGHT', ...LIMIT_HEADINGS], rows, 'No tenants.');
}

function usageTable(list: readonly UsageOut[]): string {
  const rows = list.map(row => [
    row.date,
    row.key_id,
    row.model,
    row.requests,
    row.prompt_tokens,
    row.cached_tokens,
    row.completion_tokens,
  ]);
  const sum = (column: number) => rows.reduce((total, row) => total + Number(row[column]), 0);
  if (rows.length > 1) rows.push(['total', '', '', sum(3), sum(4), sum(5), sum(6)]);
  return table(['DAY', 'KEY', 'MODEL', 'REQUESTS', 'PROMPT TOKENS', 'OF THEM CACHED', 'ANSWER TOKENS'], rows, 'Nothing was used.');
}

function batcherTable(list: readonly BatcherOut[]): string {
  const rows = list.map(one => [
    one.id,
    one.model,
    one.state,
    `${one.running_count}/${one.max_running_count}`,
    one.waiting_count,
    `${Math.round((100 * one.kv_used_tokens) / Math.max(1, one.kv_capacity_tokens))}%`,
    Math.round(one.prefill_tokens_per_second),
    Math.round(one.decode_tokens_per_second),
  ]);
  return table(['BATCHER', 'MODEL', 'STATE', 'RUNNING', 'WAITING', 'KV', 'PREFILL TOK/S', 'DECODE TOK/S'], rows, 'No batchers.');
}

function dateOf(seconds: number): string {
  return new Date(seconds * 1000).toISOString().slice(0, 10);
}
