/**
 * ClosedDoors: keys that are refused whatever they ask for, since their requests of this minute are used up, or whatever asks for so many tokens;
 * remembered in the Worker for a moment, so that a flood is refused without a call to its tenant's object, and the former without a look at
 * its bodies. A limit that was raised, or a request that was given back, counts a moment later.
 */
import type { MiddlewareHandler } from 'hono';
import { ApiError } from '../shared/errors.ts';
import type { Caller } from './api-key.ts';
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

/** A flood of thousands a second becomes some calls a second. */
const MEMORY_MS = 250;
const MAX_DOORS = 1_000;

export class ClosedDoors {
  readonly #doors = new Map<string, ClosedDoor & { forgetAt: number }>();

  close(caller: Caller, door: ClosedDoor, now: number): void {
    const name = nameOf(caller);
    this.#doors.delete(name);
    this.#doors.set(name, { ...door, forgetAt: Math.min(door.closedUntil ?? door.opensAt, now + MEMORY_MS) });
    if (this.#doors.size > MAX_DOORS) this.#doors.delete(this.#doors.keys().next().value!);
  }

  openAll(): void {
    this.#doors.clear();
  }

  /** `tokens`: that the request wants at least; undefined while that is not known. */
  find(caller: Caller, now: number, tokens?: number): { standing: Standing; error: ApiError } | undefined {
    const name = nameOf(caller);
    const door = this.#doors.get(name);
    if (door === undefined) return undefined;
    if (now >= door.forgetAt) {
      this.#doors.delete(name);
      return undefined;
    }
    const limits = door.tokens;
    if (limits !== undefined && (tokens === undefined || tokens <= limits.room || tokens > limits.wanted)) return undefined;
    const retryAfterSeconds = Math.max(1, Math.ceil((door.opensAt - now) / 1000));
    return { standing: door.standing, error: new ApiError('rate_limit_exceeded', door.message, { retryAfterSeconds }) };
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

function nameOf({ tenant, keyId }: Caller): string {
  return `${tenant} ${keyId}`;
}
