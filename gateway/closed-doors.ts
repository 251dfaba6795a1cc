/**
 * ClosedDoors: keys that are refused whatever they ask for, since their requests of this minute are used up, or whatever asks for so many tokens;
 * remembered in the Worker for a moment, so that a flood is refused without a call to its tenant's object, and the former without a look at
 * its bodies. A limit that was raised, or a request that was given back, counts a moment later: no refusal is repeated that is older.
 *
 *   close ──▶ repeated to all ──▶ one asks now and then, the others are told what is known ──▶ forgotten
 */
import type { MiddlewareHandler } from 'hono';
import { ApiError, statusOf } from '../shared/errors.ts';
import type { Caller } from './api-key.ts';
import { errorHeaders, errorText } from './error-response.ts';
import { limitHeaders } from './limit-headers.ts';
import type { Standing } from './tenant/account.ts';
import type { AdmitReply } from './tenant.ts';

export interface ClosedDoor {
  standing: Standing;
  message: string;
  /** Until when this is sure; absent where it is until `opensAt`. */
  closedUntil?: number;
  /** Epoch milliseconds from which on a request fits again. */
  opensAt: number;
  /** Stays open for requests of no more tokens than `room`, and for those of more than `wanted`, which `opensAt` is too early for. */
  tokens?: { room: number; wanted: number } | undefined;
}

/** A broker's word on a refusal: the door that is closed, in JSON. It goes no further than the Worker. */
export const DOOR_HEADER = 'x-sluice-closed-door';

/** So old a refusal may be and still be repeated: a flood of thousands a second becomes some calls a second. */
const MEMORY_MS = 250;
/** From this age on the object is asked again, before the memory ends and all of a flood would ask at once. */
const FRESH_MS = 150;
/** By one request; by another when that one has brought no refusal in this time, since it asked for something else or is lost. */
const ASKING_MS = 50;
const MAX_DOORS = 1_000;

/** A door with what is said of it, ready to be sent. */
interface RememberedDoor extends ClosedDoor {
  askAt: number;
  forgetAt: number;
  /** As of so many seconds before it opens. */
  reply: { retryAfterSeconds: number; body: string; headers: Headers } | undefined;
}

export class ClosedDoors {
  readonly #doors = new Map<string, RememberedDoor>();

  close(caller: Caller, door: ClosedDoor, now: number): void {
    const name = nameOf(caller);
    this.#doors.delete(name);
    const forgetAt = Math.min(door.closedUntil ?? door.opensAt, now + MEMORY_MS);
    this.#doors.set(name, { ...door, askAt: now + FRESH_MS, forgetAt, reply: undefined });
    if (this.#doors.size > MAX_DOORS) this.#doors.delete(this.#doors.keys().next().value!);
  }

  openAll(): void {
    this.#doors.clear();
  }

  /**
   * The refusal, where there is no need to ask for it. `tokens`: that the request wants at least; undefined while that is not known.
   * A look at the door, which is to be followed by the question whenever it brings nothing.
   */
  refusal(caller: Caller, now: number, tokens?: number): Response | undefined {
    const name = nameOf(caller);
    const door = this.#doors.get(name);
    if (door === undefined) return undefined;
    if (now >= door.forgetAt) {
      this.#doors.delete(name);
      return undefined;
    }
    const limits = door.tokens;
    if (limits !== undefined && (tokens === undefined || tokens <= limits.room || tokens > limits.wanted)) return undefined;
    if (now >= door.askAt) {
      door.askAt = now + ASKING_MS;
      return undefined;
    }
    return repeated(door, now);
  }
}

/** What a refusal tells of later requests; undefined where that is nothing. */
export function doorOf({
  standing,
  closedUntil: opensAt,
  tokensClosed,
  error,
}: AdmitReply & { outcome: 'refused' }): ClosedDoor | undefined {
  if (standing === undefined) return undefined;
  const { message } = error;
  if (opensAt !== undefined) return { standing, message, opensAt };
  return tokensClosed && { standing, message, opensAt: tokensClosed.retryAt, closedUntil: tokensClosed.until, tokens: tokensClosed };
}

/** After an admin call limits may be others. */
export function reopens(doors: ClosedDoors): MiddlewareHandler {
  return async function reopen(_, next) {
    await next();
    doors.openAll();
  };
}

/** Made once a second, since nothing else of it changes: it is most of the work that is left. */
function repeated(door: RememberedDoor, now: number): Response {
  const retryAfterSeconds = Math.max(1, Math.ceil((door.opensAt - now) / 1000));
  if (door.reply?.retryAfterSeconds !== retryAfterSeconds) {
    const error = new ApiError('rate_limit_exceeded', door.message, { retryAfterSeconds });
    door.reply = { retryAfterSeconds, body: errorText(error), headers: new Headers(errorHeaders(error, limitHeaders(door.standing))) };
  }
  return new Response(door.reply.body, { status: statusOf('rate_limit_exceeded'), headers: door.reply.headers });
}

function nameOf({ tenant, keyId }: Caller): string {
  return `${tenant} ${keyId}`;
}
