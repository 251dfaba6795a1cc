/** WorkerdConfig: the Cap'n Proto text by which `workerd serve` runs the bundled gateway on one address, its objects kept on disk. */
import { mkdir, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, relative, resolve } from 'node:path';
import { DOCS_READER_FILE } from './docs-reader.ts';
import { COMPATIBILITY_DATE, COMPATIBILITY_FLAGS, DURABLE_OBJECTS } from './worker-manifest.ts';

/** The package's default export is the path of the binary for this machine. */
const workerd = createRequire(import.meta.url)('workerd') as { default: string };

export interface WorkerdOptions {
  /** The module that bundleGateway wrote. */
  bundlePath: string;
  /** Made when missing: holds the configuration and, under `objects`, the state of the Durable Objects. */
  dataFolder: string;
  port: number;
  /** 127.0.0.1 unless given; `*` listens on every interface. */
  host?: string;
  /** Texts that the Worker finds in `env`: the names of gateway/env.ts. */
  bindings: Readonly<Record<string, string>>;
  /** Authorities besides the public ones that may vouch for a Redis behind `rediss://`; each as PEM. */
  trustedCertificates?: readonly string[];
}

/** Writes the configuration, readable by its owner only since bindings hold secrets; the command and its arguments to spawn. */
export async function writeWorkerdConfig(options: WorkerdOptions): Promise<string[]> {
  const objectFolder = resolve(options.dataFolder, 'objects');
  await mkdir(objectFolder, { recursive: true });
  const configPath = resolve(options.dataFolder, 'workerd.capnp');
  await writeFile(configPath, workerdConfig(options, objectFolder), { mode: 0o600 });
  return [workerd.default, 'serve', configPath];
}

/** Here a call to the console is a write of the process, and its text goes out as it is. */
const GATHERED = { SLUICE_LOG_GATHER_MS: '20' };

function workerdConfig(options: WorkerdOptions, objectFolder: string): string {
  const bindings = [
    ...Object.entries({ ...GATHERED, ...options.bindings }).map(([name, value]) => `(name = ${text(name)}, text = ${text(value)})`),
    ...DURABLE_OBJECTS.map(({ binding, className }) => `(name = ${text(binding)}, durableObjectNamespace = ${text(className)})`),
  ];
  const namespaces = DURABLE_OBJECTS.map(
    ({ className, staysInMemory }) =>
      `(className = ${text(className)}, uniqueKey = ${text(`sluice-${className}`)}, enableSql = true, preventEviction = ${staysInMemory})`,
  );
  const trusted = (options.trustedCertificates ?? []).map(text);
  // Relative to the configuration: an absolute one is looked up in workerd's own import path.
  const embedPath = relative(resolve(options.dataFolder), resolve(options.bundlePath));
  const readerPath = join(dirname(embedPath), DOCS_READER_FILE);
  return `using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = "gateway", worker = .gateway),
    # Redis may be on this machine, on a private network or, through TLS, anywhere.
    (name = "network", network = (allow = ["public", "private"], tlsOptions = (trustBrowserCas = true, trustedCertificates = [${trusted.join(', ')}]))),
    (name = "objects", disk = (path = ${text(objectFolder)}, writable = true)),
  ],
  sockets = [(name = "http", address = ${text(`${options.host ?? '127.0.0.1'}:${options.port}`)}, http = (), service = "gateway")],
);

const gateway :Workerd.Worker = (
  modules = [
    (name = "gateway.js", esModule = embed ${text(embedPath)}),
    (name = ${text(DOCS_READER_FILE)}, data = embed ${text(readerPath)}),
  ],
  compatibilityDate = ${text(COMPATIBILITY_DATE)},
  compatibilityFlags = [${COMPATIBILITY_FLAGS.map(text).join(', ')}],
  bindings = [
    ${bindings.join(',\n    ')},
  ],
  durableObjectNamespaces = [${namespaces.join(', ')}],
  durableObjectStorage = (localDisk = "objects"),
  globalOutbound = "network",
);
`;
}

/** A Cap'n Proto text literal: quotes and control characters escaped as in C, everything else as it is. */
function text(value: string): string {
  const escaped = Array.from(value, char => {
    const code = char.charCodeAt(0);
    if (char === '"' || char === '\\') return `\\${char}`;
    return code < 0x20 || code === 0x7f ? `\\x${code.toString(16).padStart(2, '0')}` : char;
  });
  return `"${escaped.join('')}"`;
}
