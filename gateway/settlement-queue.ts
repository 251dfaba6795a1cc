/**
 * SettlementQueue: tells tenants' objects what their requests used, at once, and under load many in one call; what could not be told is told
 * again with the next flush, until its reservation has run out by itself anyway.
 */
import type { Used } from './tenant/account.ts';
import type { Settlement } from './tenant.ts';

/** Of a tenant's object what is used here. */
export interface Settler {
  settle(settlements: Settlement[]): PromiseLike<unknown>;
  renew(progress: (Settlement & { used: Used })[]): PromiseLike<unknown>;
}

/** More than that is not kept for an object that cannot be reached. */
const MAX_OWED = 10_000;

export class SettlementQueue {
  readonly #settler: (tenant: string) => Settler;
  readonly #onTrouble: (message: string) => void;
  #owed = new Map<string, Settlement[]>();
  #owedCount = 0;
  #isFlushing = false;

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
    this.#owe(tenant, [settlement]);
    void this.flush();
  }

  /** At once, or behind the call that is under way, with all that has come by then. Never throws. */
  async flush(): Promise<void> {
    if (this.#isFlushing || this.#owedCount === 0) return;
    this.#isFlushing = true;
    // Settled in the same breath, told in the same call.
    await Promise.resolve();
    const failed: [string, Settlement[]][] = [];
    while (this.#owedCount > 0) {
      const batches = this.#owed;
      this.#owed = new Map();
      this.#owedCount = 0;
      await Promise.all(
        [...batches].map(async ([tenant, settlements]) => {
          try {
            await this.#settler(tenant).settle(settlements);
          } catch (error) {
            this.#onTrouble(String(error));
            failed.push([tenant, settlements]);
          }
        }),
      );
    }
    // For the next flush.
    for (const [tenant, settlements] of failed) this.#owe(tenant, settlements);
    this.#isFlushing = false;
  }

  #owe(tenant: string, settlements: Settlement[]): void {
    const owed = this.#owed.get(tenant);
    if (owed === undefined) this.#owed.set(tenant, settlements);
    else owed.push(...settlements);
    this.#owedCount += settlements.length;
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
