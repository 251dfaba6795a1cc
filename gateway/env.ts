/** Env: the bindings of the Worker and the settings read from them once; a bad value stops the start and names its rule. */
import { DEFAULT_ADMISSION } from '../shared/admission.ts';
import type { Batches } from './batches/batches.ts';
import type { Directory } from './directory.ts';
import { KNEE_PATTERN } from './scale-signal.ts';
import type { Tenant } from './tenant.ts';

/** What wrangler.toml or the workerd configuration binds. Texts are settings or secrets; SETTINGS says which. */
export interface Env {
  BROKER: DurableObjectNamespace;
  TENANT: DurableObjectNamespace<Tenant>;
  DIRECTORY: DurableObjectNamespace<Directory>;
  BATCHES: DurableObjectNamespace<Batches>;
  [name: string]: unknown;
}

interface NumberRule {
  name: string;
  fallback: number;
  min: number;
  max: number;
  unit: string;
  about: string;
}

const NUMBERS = {
  brokerShardCount: {
    name: 'SLUICE_BROKER_SHARDS',
    fallback: 1,
    min: 1,
    max: 64,
    unit: 'objects',
    about: 'Broker objects that requests are spread over, each with two Redis connections.',
  },
  maxBodyBytes: {
    name: 'SLUICE_MAX_BODY_BYTES',
    fallback: 4 * 1024 * 1024,
    min: 1024,
    max: 64 * 1024 * 1024,
    unit: 'bytes',
    about: 'Largest request body.',
  },
  maxMessageCount: {
    name: 'SLUICE_MAX_MESSAGES',
    fallback: 2048,
    min: 1,
    max: 100_000,
    unit: 'messages',
    about: 'Longest conversation.',
  },
  maxJsonDepth: {
    name: 'SLUICE_MAX_JSON_DEPTH',
    fallback: 64,
    min: 8,
    max: 1024,
    unit: 'levels',
    about: 'Deepest nesting of arrays and objects in a body.',
  },
  logGatherMs: {
    name: 'SLUICE_LOG_GATHER_MS',
    fallback: 0,
    min: 0,
    max: 5_000,
    unit: 'ms',
    about:
      'Lines of requests and answers that come within this time are written together; 0 writes each by itself, as Cloudflare wants it.',
  },
  maxOpenCount: {
    name: 'SLUICE_MAX_OPEN_REQUESTS',
    fallback: 4096,
    min: 1,
    max: 100_000,
    unit: 'requests',
    about: 'Requests that one broker object holds open.',
  },
  heartbeatMs: {
    name: 'SLUICE_HEARTBEAT_MS',
    fallback: 2_000,
    min: 100,
    // Proxies on the way commonly cut a connection that is silent for 15 seconds or more.
    max: 14_000,
    unit: 'milliseconds',
    about: 'Longest silence on an open reply; also how soon a client that left is noticed while nothing is generated for it.',
  },
  redisTimeoutMs: {
    name: 'SLUICE_REDIS_TIMEOUT_MS',
    fallback: 5_000,
    min: 50,
    max: 30_000,
    unit: 'milliseconds',
    about: 'How long a request waits for an answer of Redis before it is refused with 503; when Redis is known to be away, a second.',
  },
  queueTimeoutMs: {
    name: 'SLUICE_QUEUE_TIMEOUT_MS',
    fallback: 600_000,
    min: 100,
    max: 86_400_000,
    unit: 'milliseconds',
    about: 'How long a request may wait for a batcher to take it.',
  },
  silenceTimeoutMs: {
    name: 'SLUICE_SILENCE_TIMEOUT_MS',
    fallback: 600_000,
    min: 100,
    max: 86_400_000,
    unit: 'milliseconds',
    about:
      'How long a taken request may go without an event; longer than the longest prefill, its wait for a row included. A dead batcher is noticed much sooner, by its locks.',
  },
  maxBufferedBytes: {
    name: 'SLUICE_MAX_BUFFERED_BYTES',
    fallback: 1024 * 1024,
    min: 4096,
    max: 256 * 1024 * 1024,
    unit: 'bytes',
    about: 'Most that is held for a client that reads slowly; past it the client is cut off.',
  },
  leaseMs: {
    name: 'SLUICE_LEASE_MS',
    fallback: 60_000,
    min: 1_000,
    max: 3_600_000,
    unit: 'milliseconds',
    about: 'How long a request counts as running when the broker that holds it is gone; living brokers renew it in time.',
  },
  reservedTokens: {
    name: 'SLUICE_RESERVED_TOKENS',
    fallback: DEFAULT_ADMISSION.reservedTokens,
    min: 1,
    max: 1_000_000,
    unit: 'tokens',
    about: 'Reserved for an answer whose request names no max_tokens; under a token limit also the bound of that answer.',
  },
  maxBufferedTotalBytes: {
    name: 'SLUICE_MAX_BUFFERED_TOTAL_BYTES',
    fallback: 64 * 1024 * 1024,
    min: 4096,
    max: 16 * 1024 * 1024 * 1024,
    unit: 'bytes',
    about: 'Most that one broker object holds for all slow readers together; past it the slowest are cut off.',
  },
  resumeGraceMs: {
    name: 'SLUICE_RESUME_GRACE_MS',
    fallback: 30_000,
    min: 100,
    max: 3_600_000,
    unit: 'milliseconds',
    about: 'How long a resumable stream goes on without its client.',
  },
  maxWaitMs: {
    name: 'SLUICE_MAX_WAIT_MS',
    fallback: DEFAULT_ADMISSION.maxWaitMs,
    min: 0,
    max: 86_400_000,
    unit: 'milliseconds',
    about:
      'Longest wait, as estimated, with which a request is let into the queue; the header x-sluice-max-wait-ms says it for one request.',
  },
  maxQueuedTokens: {
    name: 'SLUICE_MAX_QUEUED_TOKENS',
    fallback: DEFAULT_ADMISSION.maxQueuedTokens,
    min: 1,
    max: 1_000_000_000,
    unit: 'tokens',
    about: 'Most prompt and answer tokens, as estimated, that may stand before a request in its queue; past it requests are refused.',
  },
  scaleFromZeroWaitMs: {
    name: 'SLUICE_SCALE_FROM_ZERO_WAIT_MS',
    fallback: 0,
    min: 0,
    max: 600_000,
    unit: 'milliseconds',
    about: 'How long a request is held while no batcher serves its model; 0 refuses it at once.',
  },
  scaleTargetPercent: {
    name: 'SLUICE_SCALE_TARGET_PERCENT',
    fallback: 80,
    min: 1,
    max: 100,
    unit: 'percent',
    about: 'How near to its knee a batcher is to be loaded; the desired number of batchers is told by it.',
  },
  scaleQueueMs: {
    name: 'SLUICE_SCALE_QUEUE_MS',
    fallback: 30_000,
    min: 100,
    max: 3_600_000,
    unit: 'milliseconds',
    about: 'In how long a queue that has grown is to be gone; the desired number of batchers is told by it.',
  },
  cacheLifetimeMs: {
    name: 'SLUICE_CACHE_TTL_MS',
    fallback: 600_000,
    min: 0,
    max: 7 * 86_400_000,
    unit: 'milliseconds',
    about: 'How long the answer to a deterministic request (temperature 0, or a seed) is kept and given again; 0 keeps none.',
  },
  maxCacheBytes: {
    name: 'SLUICE_CACHE_BYTES',
    fallback: 16 * 1024 * 1024,
    min: 4096,
    max: 1024 * 1024 * 1024,
    unit: 'bytes',
    about: 'Most that is kept of answers for each tenant; past it those that were not asked for the longest go.',
  },
  maxFileBytes: {
    name: 'SLUICE_MAX_FILE_BYTES',
    fallback: 100 * 1024 * 1024,
    min: 1024,
    max: 1024 * 1024 * 1024,
    unit: 'bytes',
    about: 'Largest file that is taken for batches.',
  },
  maxStoredBytes: {
    name: 'SLUICE_FILES_BYTES',
    fallback: 1024 * 1024 * 1024,
    min: 65_536,
    max: 8 * 1024 * 1024 * 1024,
    unit: 'bytes',
    about: "Most that a tenant's files and results of batches may take together; past it uploads are refused and batches end.",
  },
  fileLifetimeMs: {
    name: 'SLUICE_FILE_TTL_MS',
    fallback: 30 * 86_400_000,
    min: 3_600_000,
    max: 400 * 86_400_000,
    unit: 'milliseconds',
    about: 'How long files, results and batches are kept, unless they say less.',
  },
  batchWindow: {
    name: 'SLUICE_BATCH_WINDOW',
    fallback: 16,
    min: 1,
    max: 1_024,
    unit: 'requests',
    about: "Requests of a tenant's batches that are under way at once.",
  },
} as const satisfies Record<string, NumberRule>;

interface TextRule {
  name: string;
  fallback: string | undefined;
  pattern: RegExp;
  rule: string;
  about: string;
}

const TEXTS = {
  redisUrl: {
    name: 'REDIS_URL',
    fallback: 'redis://127.0.0.1:6379',
    pattern: /^rediss?(\+sentinel|\+cluster)?:\/\/[^\s]+$/,
    rule: 'a URL that begins with redis://, redis+sentinel:// or redis+cluster://, or with rediss for TLS',
    about: 'Where Redis or Valkey is; a secret when it holds a password.',
  },
  developmentKey: {
    name: 'SLUICE_DEV_KEY',
    fallback: undefined,
    pattern: /^[\x21-\x7e]{8,256}$/,
    rule: '8 to 256 visible ASCII characters',
    about:
      'One key for everything, tenant `dev` and administration; a secret, for a gateway on your own machine only: it never expires and cannot be revoked.',
  },
  adminKey: {
    name: 'SLUICE_ADMIN_KEY',
    fallback: undefined,
    pattern: /^[\x21-\x7e]{32,256}$/,
    rule: '32 to 256 visible ASCII characters',
    about: "The operator's key for every call under /admin; a secret.",
  },
  keySecret: {
    name: 'SLUICE_KEY_SECRET',
    fallback: undefined,
    pattern: /^[\x21-\x7e]{32,256}$/,
    rule: '32 to 256 visible ASCII characters',
    about: 'What keys are made and checked with; a secret. Without it no key can be made.',
  },
  previousKeySecret: {
    name: 'SLUICE_KEY_SECRET_PREVIOUS',
    fallback: undefined,
    pattern: /^[\x21-\x7e]{32,256}$/,
    rule: '32 to 256 visible ASCII characters',
    about: 'The secret before the last change; keys made with it are good until it is taken away. A secret.',
  },
  defaultModel: {
    name: 'SLUICE_DEFAULT_MODEL',
    fallback: undefined,
    pattern: /^[\w./:-]{1,128}$/,
    rule: '1 to 128 letters, digits and . _ - / :',
    about: 'What `default` means; else the first served model by name.',
  },
  instance: {
    name: 'SLUICE_INSTANCE',
    fallback: 'main',
    pattern: /^[a-z0-9-]{1,32}$/,
    rule: '1 to 32 lower-case letters, digits and hyphens',
    about: 'Name of this gateway among several on one Redis; part of the names of its broker objects.',
  },
  metrics: {
    name: 'SLUICE_METRICS',
    fallback: 'operator',
    pattern: /^(operator|open|off)$/,
    rule: 'operator, open or off',
    about: "Who may read /metrics: who has the operator's key, everybody, or nobody; with off nothing is counted in the Worker.",
  },
  knee: {
    name: 'SLUICE_KNEE',
    fallback: undefined,
    pattern: KNEE_PATTERN,
    rule: 'a rate above 0 in decimals for all models, or model=rate pairs parted by commas',
    about: 'Requests a second that one batcher sustains under the latency objectives, as `npx sluice plan` tells it; for autoscaling.',
  },
  accessLog: {
    name: 'SLUICE_ACCESS_LOG',
    fallback: 'on',
    pattern: /^(on|off)$/,
    rule: 'on or off',
    about: 'One JSON line a request, and one an answer that has ended.',
  },
} as const satisfies Record<string, TextRule>;

type Optional = 'developmentKey' | 'adminKey' | 'keySecret' | 'previousKeySecret' | 'defaultModel' | 'knee';

export type Settings = { readonly [K in keyof typeof NUMBERS]: number } & {
  readonly [K in Exclude<keyof typeof TEXTS, Optional>]: string;
} & { readonly [K in Optional]: string | undefined };

/** For tables in documentation and help. */
export const SETTINGS: readonly (NumberRule | TextRule)[] = [...Object.values(NUMBERS), ...Object.values(TEXTS)];

/** Throws one Error that names every bad binding and its rule; values of secrets are not repeated. */
export function readSettings(env: Readonly<Record<string, unknown>>): Settings {
  const faults: string[] = [];
  const settings: Record<string, number | string | undefined> = {};
  for (const [key, rule] of Object.entries(NUMBERS)) settings[key] = readNumber(env[rule.name], rule, faults);
  for (const [key, rule] of Object.entries(TEXTS)) settings[key] = readText(env[rule.name], rule, faults);
  if (faults.length > 0) throw new Error(`Sluice gateway cannot start: ${faults.join('; ')}.`);
  return Object.freeze(settings) as Settings;
}

function readNumber(value: unknown, rule: NumberRule, faults: string[]): number {
  if (isAbsent(value)) return rule.fallback;
  const number = typeof value === 'string' && /^\d{1,15}$/.test(value.trim()) ? Number(value) : value;
  if (typeof number === 'number' && Number.isInteger(number) && number >= rule.min && number <= rule.max) return number;
  faults.push(`${rule.name} must be a whole number of ${rule.unit} from ${rule.min} to ${rule.max}, got ${JSON.stringify(value)}`);
  return rule.fallback;
}

function readText(value: unknown, rule: TextRule, faults: string[]): string | undefined {
  if (isAbsent(value)) return rule.fallback;
  if (typeof value === 'string' && rule.pattern.test(value)) return value;
  faults.push(`${rule.name} must be ${rule.rule}`);
  return rule.fallback;
}

function isAbsent(value: unknown): boolean {
  return value === undefined || value === null || value === '';
}
