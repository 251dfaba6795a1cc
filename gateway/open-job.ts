/**
 * OpenJob: a job that has not ended, and the clients that hear of it: none, while one may still come back, or several. Each hears every
 * event once, wherever it came in.
 */
import { type ApiError, isErrorCode } from '../shared/errors.ts';
import type { TokenEvent } from '../shared/token-event.ts';
import { Bill } from './bill.ts';
import { EventOrder, type Verdict } from './event-order.ts';
import type { Relay } from './relay.ts';
import type { ReplyRecord } from './reply-record.ts';

/** Connections that died without a word are pushed out in time by the ones that replace them. */
export const MAX_LISTENERS = 32;
/** Of a job that identical requests share. */
const MAX_SHARERS = 1_024;

export class OpenJob {
  /** Until it is on a queue, which one that will be is not settled. */
  record: ReplyRecord;
  readonly order: EventOrder;
  readonly bill = new Bill();
  /** It goes on for a while when its last client has left. */
  isResumable: boolean;
  /** Another life of its broker put it on its queue. */
  isAdopted = false;
  /** Whether it came onto the queue is not known. */
  isUncertain = false;
  /** A token of it has come. */
  hasToken = false;
  /** Of the error that it ended with. */
  endCode: string | undefined;
  /** Since when it has had no client. */
  leftAt: number | undefined;
  /** When Redis was last told that there is a client for it. */
  announcedAt: number;
  /** Its record is being read. */
  isAsking = false;
  /** Something came while its record was being read. */
  isAskedAgain = false;
  /** How often its record has been read since the last event, because none came. */
  probeCount = 0;
  /** Not read again before this time. */
  probeAt = 0;
  /** Whether it may end is being looked up. */
  isLapsing = false;
  readonly #listeners = new Set<Relay>();
  /** Those that have caught up with the order. */
  readonly #live = new Set<Relay>();

  constructor(record: ReplyRecord, now: number) {
    this.record = record;
    this.isResumable = record.isResumable;
    this.order = new EventOrder(now);
    this.announcedAt = now;
  }

  get id(): string {
    return this.record.id;
  }

  /** It needs no client to be done. */
  get isBackground(): boolean {
    const { reply } = this.record;
    return reply.kind === 'response' && reply.isBackground;
  }

  get listeners(): ReadonlySet<Relay> {
    return this.#listeners;
  }

  /** A client for what is to come; `isBehind` when it has yet to be told what came before. */
  join(relay: Relay, options: { isBehind: boolean; now: number }): void {
    if (relay.phase === 'over') {
      // Gone before it came.
      if (this.#listeners.size === 0) this.leftAt ??= options.now;
      return;
    }
    this.leftAt = undefined;
    this.#listeners.add(relay);
    if (!options.isBehind) this.#live.add(relay);
    const maxCount = this.record.isCoalesced === true ? MAX_SHARERS : MAX_LISTENERS;
    if (this.#listeners.size > maxCount) this.#listeners.values().next().value!.cutOff('replaced', options.now);
  }

  leave(relay: Relay): void {
    this.#listeners.delete(relay);
    this.#live.delete(relay);
  }

  /** From the record, for one that was behind: true when it has caught up. */
  fill(relay: Relay, events: readonly TokenEvent[], now: number): boolean {
    for (const event of events) relay.take(event, now);
    if (relay.nextSeq < this.order.nextSeq && relay.phase !== 'over') return false;
    if (this.#listeners.has(relay)) this.#live.add(relay);
    relay.flush(now);
    return true;
  }

  /** An event as it was seen live. What it adds is sent by flush. */
  hear(event: TokenEvent, now: number): Verdict {
    const verdict = this.order.hear(event, now);
    if (verdict === 'next') this.#tell(event, now);
    return verdict;
  }

  /** Events of the job's record. False when one is missing among them, which ends it. */
  learn(events: readonly TokenEvent[], now: number): boolean {
    const news = this.order.learn(events, now);
    if (news === 'hole') return false;
    for (const event of news) this.#tell(event, now);
    return true;
  }

  flush(now: number): void {
    for (const relay of this.#live) relay.flush(now);
  }

  /** Its clients are sent away, and may come back: whether it came onto the queue is not known. */
  dismiss(error: ApiError, now: number): void {
    this.isUncertain = true;
    this.leftAt = now;
    for (const relay of [...this.#listeners]) {
      relay.fail(error, now);
      this.leave(relay);
    }
  }

  /** The end, for everyone who still listens. */
  fail(error: ApiError, now: number): void {
    this.order.end();
    this.bill.fail();
    this.endCode ??= error.code;
    for (const relay of [...this.#listeners]) relay.fail(error, now);
  }

  #tell(event: TokenEvent, now: number): void {
    this.probeCount = 0;
    this.probeAt = 0;
    this.bill.take(event);
    if (event.type === 'error') this.endCode ??= isErrorCode(event.code) ? event.code : 'generation_failed';
    for (const relay of this.#live) relay.take(event, now);
  }
}
