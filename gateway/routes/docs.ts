/**
 * GET /docs: the API's description to be read and tried, by Scalar's reader. The reader is 1.4 MB compressed, so a public CDN has it and not the
 * Worker: in one fixed version whose digest the browser checks. Keys that are typed into the page can go nowhere but to this gateway.
 */
import type { Context } from 'hono';
import type { AppEnv } from '../app-env.ts';

const CDN = 'https://cdn.jsdelivr.net';
const READER = `${CDN}/npm/@scalar/api-reference@1.76.0/dist/browser/standalone.js`;
const READER_DIGEST = 'sha384-oH1C0RwqcwbVXkC+r8A+4qRoyEUQdtxAzOwumkxZtQBBcsy61FOoPt7B50OVJYYQ';

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
  `script-src ${CDN}`,
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
<style>
body { margin: 0; font-family: system-ui, sans-serif; }
.wait { margin: 3rem auto; max-width: 40rem; padding: 0 1rem; }
body:has(.scalar-app) .wait { display: none; }
</style>
</head>
<body>
<p class="wait">The reader of this page comes from ${new URL(CDN).host}. Where that cannot be reached, the API's description is
<a href="/openapi.json">/openapi.json</a>, which every tool for OpenAPI 3.1 reads.</p>
<script id="api-reference" type="application/json" data-url="/openapi.json" data-configuration='${JSON.stringify(CONFIGURATION)}'></script>
<script src="${READER}" integrity="${READER_DIGEST}" crossorigin="anonymous"></script>
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
