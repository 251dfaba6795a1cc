/**
 * RequestHeads: request lines and headers as no client library would send them, over a bare socket: keys that are nearly right, giant and broken
 * headers, odd paths and methods, positions and idempotency keys that are none.
 */
import { connect } from 'node:net';
import type { Stack } from '../stack.ts';
import type { Dice } from './dice.ts';
import { strangeNumber, strangeText } from './strange-values.ts';
import type { LiveSurface } from './surface.ts';

const HANG_MS = 15_000;
const MAX_REPLY_BYTES = 1 << 20;

const PATHS = [
  ...['/v1/chat/completions', '/v1/completions', '/v1/models', '/v1/models/default', '/v1/streams/chatcmpl-0', '/health', '/ready', '/'],
  ...[
    '/admin/tenants',
    '/admin/keys',
    '/admin/keys/k',
    '/admin/usage?tenant=dev',
    '/admin/batchers',
    '/admin/batchers/b/drain',
    '/v1',
    '/v1/',
  ],
  ...[
    '/v1/chat/completions/',
    '//v1/models',
    '/v1/../admin/keys',
    '/v1/%2e%2e/admin/keys',
    '/v1/models/%00',
    '/v1/models/%ff%fe',
    '/v1/models/%',
  ],
  ...[
    '/v1/streams/x?token=a.b',
    '/v1/streams/x?token=',
    '/v1/streams/x?after=1e9',
    '/v1/streams/x?after=-1&after=2',
    '/v1/models?a=%',
    '*',
  ],
  ...['http://elsewhere.test/v1/models', 'elsewhere.test:443', '/v1/models#x', '/\\admin', '/ADMIN/keys'],
];
/** Not CONNECT, which workerd answers itself, with a 500 in plain text: no Worker hears of it. */
const METHODS = ['GET', 'POST', 'DELETE', 'PUT', 'PATCH', 'OPTIONS', 'HEAD', 'TRACE', 'PROPFIND', 'get', '', 'G E T', 'POST\t'];
const NAMES = [
  ...[
    'last-event-id',
    'idempotency-key',
    'x-sluice-resumable',
    'x-sluice-max-wait-ms',
    'x-sluice-cache',
    'x-sluice-coalesce',
    'cache-control',
  ],
  ...[
    'x-request-id',
    'content-type',
    'content-length',
    'content-encoding',
    'transfer-encoding',
    'host',
    'origin',
    'accept-encoding',
    'expect',
  ],
  ...[
    'access-control-request-method',
    'access-control-request-headers',
    'traceparent',
    'cookie',
    'cf-connecting-ip',
    'upgrade',
    'connection',
    'range',
  ],
];
const BODY = '{"model":"default","messages":[{"role":"user","content":"Hi"}],"max_tokens":1,"temperature":0}';

export const requestHeads: LiveSurface = {
  what: 'request lines and headers at the gateway',
  async open(stack) {
    return { width: 16, feed: dice => feed(stack, dice) };
  },
};

async function feed(stack: Stack, dice: Dice): Promise<string> {
  const request = requestOf(stack.target.apiKey, dice);
  const reply = await exchange(new URL(stack.target.baseUrl), request);
  if (reply === '') return 'closed without a word';
  const final = reply.replace(/^HTTP\/1\.1 100 Continue\r\n\r\n/, '');
  const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(final)?.[1]);
  if (!(status >= 200)) throw new Error(`no reply of HTTP: ${JSON.stringify(reply.slice(0, 200))}`);
  if (status >= 500 && status !== 503 && status !== 501)
    throw new Error(`${reply.slice(0, 300)}\nasked ${JSON.stringify(request.toString('latin1').slice(0, 1_500))}`);
  if (reply.includes(stack.target.apiKey)) throw new Error('the reply holds the key');
  return status < 400 ? 'answered' : `refused (${status})`;
}

function requestOf(key: string, dice: Dice): Buffer {
  const method = dice.chance(0.8) ? dice.pick(['GET', 'POST', 'POST', 'DELETE']) : dice.pick(METHODS);
  const path = dice.chance(0.85) ? dice.pick(PATHS) : `/${strangeText(dice, 9_000)}`.replaceAll(/[\r\n]/g, '');
  const lines = [`${method} ${path} HTTP/1.1`, ...(dice.chance(0.95) ? ['host: gateway.test'] : [])];
  if (dice.chance(0.9)) lines.push(`authorization: ${credentials(key, dice)}`);
  const names = Array.from({ length: dice.below(4) }, () => dice.pick(NAMES));
  for (const name of names) {
    lines.push(`${dice.chance(0.95) ? name : strangeText(dice, 50)}: ${headerValue(dice)}`);
    if (dice.chance(0.1)) lines.push(lines.at(-1)!);
  }
  if (dice.chance(0.03)) for (let i = 0; i < 500; i++) lines.push(`x-${i}: ${i}`);
  const hasBody = method === 'POST' && dice.chance(0.9);
  if (!names.includes('content-length') && !names.includes('transfer-encoding')) lines.push(`content-length: ${hasBody ? BODY.length : 0}`);
  lines.push('connection: close');
  const ends = dice.chance(0.97) ? '\r\n' : dice.pick(['\n', '\r', '\r\n ', '\0']);
  return Buffer.from(`${lines.join(ends)}\r\n\r\n${hasBody ? BODY : ''}`, dice.chance(0.5) ? 'latin1' : 'utf8');
}

/** The key, nearly the key, and what only looks like one. */
function credentials(key: string, dice: Dice): string {
  const at = dice.below(key.length);
  return dice.pick([
    () => `Bearer ${key}`,
    () => `Bearer ${key}`,
    () => `bearer   ${key}  `,
    () => `Bearer ${key.slice(0, at)}${dice.pick(['x', '', '%', '\u00e9'])}${key.slice(at + 1)}`,
    () => `Bearer ${key}${key}`,
    () => `Bearer ${key} ${key}`,
    () => `Basic ${btoa(`user:${key}`)}`,
    () => `Bearer sk-sluice-${dice.pick(['acme', 'a'.repeat(200), '../x', '-', 'ACME'])}-k1-${'A'.repeat(43)}`,
    () => `Bearer ${'sk-sluice-'.repeat(dice.between(1, 800))}`,
    () => `Bearer ${plain(strangeText(dice, 20_000))}`,
    () => plain(strangeText(dice, 200)),
  ])();
}

function headerValue(dice: Dice): string {
  return dice.pick([
    () => strangeNumber(dice),
    () => plain(strangeText(dice, 30_000)),
    () => 'x'.repeat(dice.pick([255, 256, 8_000, 16_000, 70_000, 200_000])),
    () => dice.pick(['true', 'false', 'on', 'off', 'no-store', 'gzip', 'chunked', '100-continue', '0', '-1', '5', 'a,b;c=d', '"', '\t']),
  ])();
}

/** Without the ends of lines, which would begin another header, and not always without other controls. */
function plain(text: string): string {
  return text.replaceAll(/[\r\n]/g, ' ');
}

/** Everything that comes back until the other side closes. */
function exchange(url: URL, request: Buffer): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  let reply = '';
  const socket = connect({ host: url.hostname, port: Number(url.port) });
  socket.setTimeout(HANG_MS, () => {
    reject(
      new Error(`it hangs after ${JSON.stringify(reply.slice(0, 200))}, asked ${JSON.stringify(request.toString('latin1').slice(0, 300))}`),
    );
    socket.destroy();
  });
  socket.on('data', data => {
    reply += String(data);
    if (reply.length > MAX_REPLY_BYTES) socket.destroy(new Error(`a reply of more than ${MAX_REPLY_BYTES} bytes`));
  });
  socket.on('error', error => {
    // It did not read all that it was sent.
    if (/ECONNRESET|EPIPE/.test((error as NodeJS.ErrnoException).code ?? '')) resolve(reply);
    else reject(error);
  });
  socket.on('close', () => resolve(reply));
  socket.end(request);
  return promise;
}
