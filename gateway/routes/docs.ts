/**
 * GET /docs: the API's description to be read and tried, by Scalar's reader. The page needs nothing from elsewhere, and a key that is typed
 * into it can go nowhere but to this gateway.
 */
import type { Context } from 'hono';
import type { AppEnv } from '../app-env.ts';

const READER_PATH = '/docs/reader.js';

const CONFIGURATION = {
  withDefaultFonts: false,
  telemetry: false,
  showDeveloperTools: 'never',
  agent: { disabled: true },
  mcp: { disabled: true },
  authentication: { preferredSecurityScheme: 'key' },
};

const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'unsafe-inline'",
  "img-src 'self' data:",
  'font-src data:',
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

const PAGE = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sluice: the API</title>
<style>body { margin: 0; font-family: system-ui, sans-serif; }</style>
</head>
<body>
<noscript>Without scripts: <a href="/openapi.json">/openapi.json</a>.</noscript>
<script id="api-reference" type="application/json" data-url="/openapi.json" data-configuration='${JSON.stringify(CONFIGURATION)}'></script>
<script src="${READER_PATH}"></script>
</body>
</html>
`;

export function docs(c: Context<AppEnv>): Response {
  return c.body(PAGE, 200, {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': POLICY,
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
  });
}

/** Sent as it is kept, compressed, to whoever takes that; all browsers do. */
export async function docsReader(c: Context<AppEnv>): Promise<Response> {
  const { default: reader } = await import('sluice-docs-reader');
  const headers = {
    'content-type': 'text/javascript; charset=utf-8',
    'cache-control': 'public, max-age=3600',
    'x-content-type-options': 'nosniff',
    vary: 'accept-encoding',
  };
  if (/\bgzip\b/.test(c.req.header('accept-encoding') ?? '')) {
    return new Response(reader, { headers: { ...headers, 'content-encoding': 'gzip' }, encodeBody: 'manual' });
  }
  return new Response(new Response(reader).body!.pipeThrough(new DecompressionStream('gzip')), { headers });
}
