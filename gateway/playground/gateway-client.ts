/** GatewayClient: the calls of the playground, to the gateway that served it. */
import type { BatcherOut, ListOut } from '../../shared/admin-wire.ts';
import { faultOf } from './api-fault.ts';
import type { ChatRequest } from './chat-request.ts';
import { type FleetLoad, fleetLoad } from './fleet-load.ts';

/** By which a stream is read on, without a key. */
export interface StreamHandle {
  id: string;
  token: string;
}

/** Names of the models that are served now. */
export async function listModels(key: string): Promise<string[]> {
  const { data } = await getJson<{ data: { id: string }[] }>('/v1/models', key);
  return data.map(model => model.id);
}

/** Undefined for a key that may not see it. */
export async function readFleetLoad(key: string): Promise<FleetLoad | undefined> {
  const response = await fetch('/admin/batchers', { headers: authorization(key) });
  if (!response.ok) return undefined;
  const { data } = (await response.json()) as ListOut<BatcherOut>;
  const models = new Set(data.map(batcher => batcher.model));
  const ratios = await Promise.all(Array.from(models, name => readKneeRatio(name, key)));
  return fleetLoad(data, ratios);
}

/** Null where no knee is known, or the gateway does not tell. */
async function readKneeRatio(model: string, key: string): Promise<number | null> {
  const response = await fetch(`/scale?${new URLSearchParams({ model })}`, { headers: authorization(key) });
  return response.ok ? ((await response.json()) as { knee_ratio: number | null }).knee_ratio : null;
}

/** The reply as it is: a stream, or an error with a status. */
export function openChat(request: ChatRequest, options: { key: string; signal: AbortSignal }): Promise<Response> {
  return fetch('/v1/chat/completions', {
    method: 'POST',
    headers: { ...authorization(options.key), 'content-type': 'application/json', 'x-sluice-resumable': 'true' },
    body: JSON.stringify(request),
    signal: options.signal,
  });
}

/** The same stream once more, from after the event with this id; 204 when that was its last. */
export function rejoinStream(stream: StreamHandle, lastId: string | undefined, signal: AbortSignal): Promise<Response> {
  const query = new URLSearchParams({ token: stream.token, ...(lastId !== undefined && { after: lastId }) });
  return fetch(`/v1/streams/${encodeURIComponent(stream.id)}?${query}`, { signal });
}

/** Ends it for everybody who reads it, and frees its row. */
export async function cancelStream(id: string, key: string): Promise<void> {
  const response = await fetch(`/v1/streams/${encodeURIComponent(id)}`, { method: 'DELETE', headers: authorization(key) });
  if (!response.ok) throw await faultOf(response);
}

async function getJson<T>(path: string, key: string): Promise<T> {
  const response = await fetch(path, { headers: authorization(key) });
  if (!response.ok) throw await faultOf(response);
  return (await response.json()) as T;
}

function authorization(key: string): Record<string, string> {
  return { authorization: `Bearer ${key}` };
}
