/**
 * SettlementQueue: tells tenants' objects what their requests used, many in one call; what could not be told is told again, until its
 * reservation has run out by itself anyway.
 */
import type { Used } from './tenant/account.ts';
import type { Settlement } from './tenant.ts';

/** Of a tenant's object what is used here. */
export interface Settler {
  settle(settlements: Settlement[]): PromiseLike<unknown>;
  renew(progress: (Settlement & { used: Used })[]): PromiseLike<unknown>;
}

/** Long enough for a burst to become one call, too short for a person to see. */
const GATHER_MS = 10;
/** More than that is not kept for an object that cannot be reached. */
const MAX_OWED = 10_000;

export class SettlementQueue {
  readonly #settler: (tenant: string) => Settler;
  readonly #onTrouble: (message: string) => void;
  #owed = new Map<string, Settlement[]>();
  #owedCount = 0;
  #isGathering = false;

  constructor(options: { settler(tenant: string): Settler; onTrouble(message: string): void }) {
    this.#settler = options.settler;
    this.#onTrouble = options.onTrouble;
  }

  get owedCount(): number {
    return this.#owedCount;
  }

  settle(tenant: string, settlement: Settlement): void {
    if (this.#owedCount >= MAX_OWED) {
      this.#onTrouble(`settlement of ${settlement.id} given up`);
      return;
    }
    const owed = this.#owed.get(tenant);
    if (owed === undefined) this.#owed.set(tenant, [settlement]);
    else owed.push(settlement);
    this.#owedCount += 1;
    if (this.#isGathering) return;
    this.#isGathering = true;
    setTimeout(() => void this.flush(), GATHER_MS);
  }

  /** Never throws. */
  async flush(): Promise<void> {
    this.#isGathering = false;
    const batches = this.#owed;
    this.#owed = new Map();
    this.#owedCount = 0;
    await Promise.all(
      [...batches].map(async ([tenant, settlements]) => {
        try {
          await this.#settler(tenant).settle(settlements);
        } catch (error) {
          this.#onTrouble(String(error));
          // For the next flush, behind what has come meanwhile.
          this.#owed.set(tenant, [...(this.#owed.get(tenant) ?? []), ...settlements]);
          this.#owedCount += settlements.length;
        }
      }),
    );
  }

  /** Never throws: the next renewal comes long before a lease is over. */
  async renew(running: Iterable<{ tenant: string; progress: Settlement & { used: Used } }>): Promise<void> {
    const byTenant = Map.groupBy(running, ({ tenant }) => tenant);
    await Promise.all(
      [...byTenant].map(async ([tenant, entries]) => {
        try {
          await this.#settler(tenant).renew(entries.map(({ progress }) => progress));
        } catch (error) {
          this.#onTrouble(String(error));
        }
      }),
    );
  }
}
