/** GET /: the playground, one page that needs nothing from elsewhere; it holds no key and makes its calls with the one that is typed in. */
import type { Context } from 'hono';
import type { AppEnv } from '../app-env.ts';
import { html, htmlHash, scriptHash, styleHash } from '../playground/page.html';

const HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': [
    "default-src 'none'",
    `script-src '${scriptHash}'`,
    `style-src '${styleHash}'`,
    "connect-src 'self'",
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  // A new gateway brings a new page; the hash tells whether it is one.
  'cache-control': 'no-cache',
  etag: `"${htmlHash}"`,
};

export function playground() {
  return function page(c: Context<AppEnv>): Response {
    if (c.req.header('if-none-match') === HEADERS.etag) return new Response(null, { status: 304, headers: HEADERS });
    return new Response(html, { headers: HEADERS });
  };
}
