/**
 * Run: `node scripts/run.mjs NAME args…` runs scripts/NAME.ts on the Node 24 of node_modules, installing the packages when they are not what
 * the lockfile says. Plain JavaScript, since the machine's own Node may be older. Nothing that it started outlives it.
 */
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const PROJECT = dirname(dirname(fileURLToPath(import.meta.url)));
const NODE = join(PROJECT, 'node_modules', 'node', 'bin', 'node');
const OLDEST_NODE = 20;
/** A script has this long to end after a signal; `npm start` itself needs up to 5 s. */
const GRACE_MS = 8_000;
/** They have bounds of their own, which their user chose. */
const UNHURRIED = ['batcher'];
const PARENT_CHECK_MS = 250;
/** A terminal tells the child as well as us. A program that is ending has no handler for some milliseconds, and dies of a second signal then. */
const TERMINAL_SIGNALS = ['SIGINT', 'SIGHUP'];
const HEARD_MS = 250;

const [name, ...args] = process.argv.slice(2);
if (Number(process.versions.node.split('.')[0]) < OLDEST_NODE) {
  fail(`Sluice needs Node ${OLDEST_NODE} or newer to start; this is ${process.version}.`);
}
if (name === undefined || !/^[a-z][a-z-]*$/.test(name) || !existsSync(join(PROJECT, 'scripts', `${name}.ts`))) {
  fail(name === undefined ? 'Usage: node scripts/run.mjs NAME args…' : `There is no script "${name}".`);
}

/** The child of the moment: npm first, perhaps, then the script. */
let child;
let stopping = false;
process.on('SIGINT', () => stop('SIGINT'));
process.on('SIGTERM', () => stop('SIGTERM'));
process.on('SIGHUP', () => stop('SIGHUP'));
watchParent();

if (!packagesComplete()) await installPackages();
// A stable place, so that the second start need not compile its modules again.
const compileCache = process.env.NODE_COMPILE_CACHE ?? join(PROJECT, 'node_modules', '.cache', 'compile');
const preload = pathToFileURL(join(PROJECT, 'scripts', 'supervisor', 'end-with-parent.ts')).href;
const end = await run(NODE, ['--import', preload, join(PROJECT, 'scripts', `${name}.ts`), ...args], {
  // Paths among the arguments are the caller's; npm has already gone to the project's folder and says where it came from.
  cwd: process.env.npm_lifecycle_event === name ? (process.env.INIT_CWD ?? process.cwd()) : process.cwd(),
  environment: { NODE_COMPILE_CACHE: compileCache, SLUICE_PARENT_PID: String(process.pid) },
});
leaveAs(end);

/** Every package that the lockfile wants here is installed in that version. npm writes its own record last, so a broken install has none. */
function packagesComplete() {
  if (!existsSync(NODE)) return false;
  try {
    const wanted = JSON.parse(readFileSync(join(PROJECT, 'package-lock.json'), 'utf8')).packages;
    const present = JSON.parse(readFileSync(join(PROJECT, 'node_modules', '.package-lock.json'), 'utf8')).packages;
    return Object.entries(wanted).every(([path, entry]) => {
      if (path === '') return true;
      // Optional ones are left out where they do not fit the machine.
      if (present[path] === undefined) return entry.optional === true || entry.devOptional === true;
      return present[path].version === entry.version && present[path].integrity === entry.integrity;
    });
  } catch {
    return false;
  }
}

async function installPackages() {
  process.stderr.write('Installing packages (once; about a minute) …\n');
  const npmScript = process.env.npm_execpath;
  const [command, ...npm] = npmScript?.endsWith('npm-cli.js') ? [process.execPath, npmScript] : ['npm'];
  const installed = await run(command, [...npm, 'ci', '--include=dev', '--no-fund', '--no-audit', '--loglevel=error'], {
    cwd: PROJECT,
    // Else onnxruntime's install script fetches CUDA libraries, several hundred megabytes, on every Linux host.
    environment: { ONNXRUNTIME_NODE_INSTALL: process.env.ONNXRUNTIME_NODE_INSTALL ?? 'skip' },
  });
  if (installed.missing) fail('npm is missing: install it (on Debian: apt-get install npm), then start again.');
  if (installed.code !== 0 || stopping) {
    if (!stopping) process.stderr.write('Packages could not be installed; npm says why above.\n');
    leaveAs(installed);
  }
  if (!existsSync(NODE)) fail('Packages were installed but node_modules/node/bin/node is missing: npm was told to run no install scripts.');
}

/** Resolves with `{code, signal}` when the command has ended, or `{missing: true}` when there is no such command. */
function run(command, commandArgs, { cwd, environment }) {
  return new Promise(resolve => {
    child = spawn(command, commandArgs, { stdio: 'inherit', cwd, env: { ...process.env, ...environment } });
    child.once('error', error => resolve({ code: 1, signal: null, missing: error.code === 'ENOENT' }));
    child.once('exit', (code, signal) => resolve({ code, signal, missing: false }));
  });
}

/** Forwards the signal; what does not end by itself is killed. */
function stop(signal) {
  stopping = true;
  if (TERMINAL_SIGNALS.includes(signal)) setTimeout(() => child?.kill(signal), HEARD_MS);
  else child?.kill(signal);
  if (!UNHURRIED.includes(name)) setTimeout(() => child?.kill('SIGKILL'), GRACE_MS).unref();
}

/**
 * npm may be killed by a signal that it cannot hand on. It starts us through a shell, which then lives on; so the shell's parent is watched too.
 * (A shell that has put us in its own place is gone from the start: then our parent is npm.)
 */
function watchParent() {
  const parent = process.ppid;
  const npm = commandOf(parent).includes('run.mjs') ? parentOf(parent) : undefined;
  setInterval(() => {
    const isOrphan = process.ppid !== parent || (npm !== undefined && parentOf(parent) !== npm);
    if (isOrphan && !stopping) stop('SIGTERM');
  }, PARENT_CHECK_MS).unref();
}

function commandOf(pid) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return processFact(pid, 'command=');
  }
}

function parentOf(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // After the name, which may hold spaces and brackets: state, parent.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1];
  } catch {
    return processFact(pid, 'ppid=');
  }
}

/** Where there is no /proc. */
function processFact(pid, column) {
  return (spawnSync('ps', ['-o', column, '-p', String(pid)], { encoding: 'utf8' }).stdout ?? '').trim();
}

/** Ends as the child ended: its exit code, or its signal. */
function leaveAs({ code, signal }) {
  if (signal === null) process.exit(code ?? 1);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
  // Where the signal does not end us at once.
  setTimeout(() => process.exit(1), 100);
}

function fail(line) {
  process.stderr.write(`${line}\n`);
  process.exit(2);
}
