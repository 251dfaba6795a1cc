/**
 * GatewayLoad: the loads that a gateway is put under, each for a while, and what came of them. What is not as it should be (a status, a token
 * that is missing, an end that is none) is a fault, told in words; the load goes on.
 */
import type { GatewaySide, Refusal } from './gateway-side.ts';
import { HttpConnection, type HttpReply } from './http-connection.ts';
import { cpuMs, residentKib } from './process-usage.ts';
import { percentile } from './spread.ts';
import { TOKEN_MARKER } from './token-text.ts';

/** Of one load: how much a second, and the gateway's own processor time for one of it. */
export interface Rate {
  perSecond: number;
  gatewayCpuMs: number | undefined;
  faults: string[];
}

const DONE = /data: ?\[DONE\]\s*$/;

export async function firstTokenMs(side: GatewaySide, count: number): Promise<{ p50: number; p99: number; faults: string[] }> {
  const request = side.request(1);
  const faults: string[] = [];
  const times: number[] = [];
  await withConnections(side, 1, async ([connection]) => {
    for (let index = 0; index < count; index++) {
      const reply = await connection!.send(request);
      faults.push(...streamFaults(reply, 1));
      if (reply.firstMarkerMs !== undefined) times.push(reply.firstMarkerMs);
    }
  });
  if (times.length === 0) throw new Error(`${side.name}: no token came: ${faults[0]}`);
  return { p50: percentile(times, 50), p99: percentile(times, 99), faults };
}

/** One-token streams, one after the other on each connection. */
export function streams(side: GatewaySide, load: { clientCount: number; seconds: number }): Promise<Rate> {
  const request = side.request(1);
  return repeated(side, load, async connection => ({ count: 1, faults: streamFaults(await connection.send(request), 1) }));
}

/** Long streams, as many as connections, over and over. */
export function tokens(
  side: GatewaySide,
  { tokenCount, paceMs, ...load }: { clientCount: number; seconds: number; tokenCount: number; paceMs?: number },
): Promise<Rate> {
  const request = side.request(tokenCount, paceMs);
  return repeated(side, load, async connection => {
    const reply = await connection.send(request);
    return { count: reply.markerCount, faults: streamFaults(reply, tokenCount) };
  });
}

export async function refusals(side: GatewaySide, refusal: Refusal, load: { clientCount: number; seconds: number }): Promise<Rate> {
  // The first may be let in.
  await withConnections(side, 1, async ([connection]) => {
    for (let index = 0; index < 3; index++) await connection!.send(refusal.request);
  });
  const gate = new LetIn(load.seconds);
  return await repeated(side, load, async connection => ({
    count: 1,
    faults: gate.faults(await connection.send(refusal.request), refusal),
  }));
}

export interface Held {
  openCount: number;
  seconds: number;
  /** Of the gateway, each stream; undefined where it cannot be read. */
  kibPerStream: number | undefined;
  faults: string[];
  /** Beside the open streams. */
  streamCount: number;
  refusalCount: number;
}

const HELD_STEP_MS = 200;
const BESIDE_COUNT = 4;
const PAUSE_MS = 20;

/** Streams that stay open, a token each every 200 ms, and beside them short streams and refusals, for so many seconds. */
export async function held(side: GatewaySide, { openCount, seconds }: { openCount: number; seconds: number }): Promise<Held> {
  const tokenCount = Math.ceil((seconds * 1000) / HELD_STEP_MS);
  const request = side.request(tokenCount, HELD_STEP_MS);
  const faults: string[] = [];
  let streamCount = 0;
  let refusalCount = 0;
  const before = await residentKib(side.pid);
  const gate = new LetIn(2 * seconds);
  let during: number | undefined;
  await withConnections(side, openCount, async connections => {
    let isOver = false;
    const open = Promise.all(
      connections.map(async connection => {
        try {
          faults.push(...streamFaults(await connection.send(request), tokenCount));
        } catch (error) {
          faults.push(`an open stream ended: ${String(error)}`);
        }
      }),
    ).then(() => {
      isOver = true;
    });
    await new Promise(resolve => setTimeout(resolve, (seconds * 1000) / 4));
    during = await residentKib(side.pid);
    await withConnections(side, BESIDE_COUNT, async beside => {
      const short = side.request(1);
      await Promise.all(
        beside.map(async (connection, index) => {
          const refusal = side.refusals[index % Math.max(1, side.refusals.length)];
          while (!isOver) {
            faults.push(...streamFaults(await connection.send(short), 1));
            streamCount += 1;
            if (refusal !== undefined) {
              faults.push(...gate.faults(await connection.send(refusal.request), refusal));
              refusalCount += 1;
            }
            await new Promise(resolve => setTimeout(resolve, PAUSE_MS));
          }
        }),
      );
    });
    await open;
  });
  const kibPerStream = before === undefined || during === undefined ? undefined : (during - before) / openCount;
  return { openCount, seconds, kibPerStream, faults, streamCount, refusalCount };
}

async function repeated(
  side: GatewaySide,
  { clientCount, seconds }: { clientCount: number; seconds: number },
  once: (connection: HttpConnection) => Promise<{ count: number; faults: string[] }>,
): Promise<Rate> {
  const faults: string[] = [];
  let count = 0;
  const cpuBefore = await cpuMs(side.pid);
  const startedAt = performance.now();
  const endAt = startedAt + seconds * 1000;
  await withConnections(side, clientCount, async connections => {
    await Promise.all(
      connections.map(async connection => {
        while (performance.now() < endAt) {
          try {
            const result = await once(connection);
            count += result.count;
            faults.push(...result.faults);
          } catch (error) {
            faults.push(String(error));
            return;
          }
        }
      }),
    );
  });
  const wallMs = performance.now() - startedAt;
  const cpuAfter = await cpuMs(side.pid);
  const gatewayCpuMs = cpuBefore === undefined || cpuAfter === undefined || count === 0 ? undefined : (cpuAfter - cpuBefore) / count;
  return { perSecond: (count / wallMs) * 1000, gatewayCpuMs, faults };
}

async function withConnections(
  side: GatewaySide,
  count: number,
  use: (connections: readonly HttpConnection[]) => Promise<void>,
): Promise<void> {
  const connections = await Promise.all(Array.from({ length: count }, () => HttpConnection.open(side.port, TOKEN_MARKER)));
  try {
    await use(connections);
  } finally {
    for (const connection of connections) connection.close();
  }
}

function streamFaults({ status, markerCount, tail }: HttpReply, tokenCount: number): string[] {
  if (status !== 200) return [`status ${status}: ${tail.slice(0, 200)}`];
  if (markerCount !== tokenCount) return [`${markerCount} tokens instead of ${tokenCount}`];
  return DONE.test(tail) ? [] : ['no [DONE] at the end'];
}

/** A limit of one request a minute lets one in each minute, which is right; more is a fault. */
class LetIn {
  #leftCount: number;

  constructor(seconds: number) {
    this.#leftCount = 2 * Math.ceil(seconds / 60 + 1);
  }

  faults({ status, tail }: HttpReply, { name, statuses }: Refusal): string[] {
    if (statuses.includes(status)) return [];
    if (status === 200 && statuses.includes(429) && this.#leftCount-- > 0) return [];
    return [`${name}: status ${status}: ${tail.slice(0, 200)}`];
  }
}
