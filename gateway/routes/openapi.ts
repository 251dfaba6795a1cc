/** OpenapiDescription: answers GET /openapi.json; it is made at the first call: a gateway that nobody asks for it has no cost of it. */
import type { Context } from 'hono';
import type { AppEnv } from '../app-env.ts';

const MAX_AGE_S = 300;

export async function openapi(c: Context<AppEnv>): Promise<Response> {
  const { openapiText } = await import('../openapi/document.ts');
  return c.body(openapiText(), 200, { 'content-type': 'application/json', 'cache-control': `public, max-age=${MAX_AGE_S}` });
}
