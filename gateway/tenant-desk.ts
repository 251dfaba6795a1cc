/**
 * TenantDesk: what one broker has for the tenants' objects: requests that want to be let in, and what others have used. A call is most of what
 * a request costs there, so one call at a time goes to each object, with all that has come by then. An admission is never asked for before
 * the settlements that were there first; what could not be told is told again, until its reservation has run out by itself anyway.
 */
import type { Used } from './tenant/account.ts';
import type { AdmitReply, Application, Settlement } from './tenant.ts';

/** Of a tenant's object what is used here. */
export interface TenantAccount {
  serve(settlements: Settlement[], applications: Application[]): PromiseLike<(AdmitReply | undefined)[]>;
  admit(application: Application): PromiseLike<AdmitReply>;
  renew(progress: (Settlement & { used: Used })[]): PromiseLike<unknown>;
}

export interface TenantDeskOptions {
  account(tenant: string): TenantAccount;
  onTrouble(message: string): void;
}

/** Settlements wait so long for an admission that takes them along; the object itself waits longer for them where that matters. */
const SETTLE_AFTER_MS = 10;
/** More than that is not kept for objects that cannot be reached. */
const MAX_OWED = 10_000;

interface Asked {
  application: Application;
  model: string;
  resolve(reply: AdmitReply): void;
  reject(error: unknown): void;
}

/** What there is for one tenant. */
interface Line {
  settlements: Settlement[];
  asked: Asked[];
  isServed: boolean;
}

export class TenantDesk {
  readonly #options: TenantDeskOptions;
  readonly #lines = new Map<string, Line>();
  #owedCount = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(options: TenantDeskOptions) {
    this.#options = options;
  }

  /** Settlements that are still to be told. */
  get owedCount(): number {
    return this.#owedCount;
  }

  /** Throws what the call throws; whether the request was let in is not known then, and it is given back. */
  admit(tenant: string, model: string, application: Application): Promise<AdmitReply> {
    const { promise, resolve, reject } = Promise.withResolvers<AdmitReply>();
    const line = this.#line(tenant);
    line.asked.push({ application, model, resolve, reject });
    void this.#serve(tenant, line);
    return promise;
  }

  settle(tenant: string, settlement: Settlement): void {
    this.#owe(tenant, settlement);
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.flush();
    }, SETTLE_AFTER_MS);
  }

  /** Never throws: what fails is told by a later one. */
  async flush(): Promise<void> {
    if (this.#owedCount === 0) return;
    await Promise.all([...this.#lines].map(([tenant, line]) => this.#serve(tenant, line)));
  }

  /** Never throws: the next renewal comes long before a lease is over. */
  async renew(running: Iterable<{ tenant: string; progress: Settlement & { used: Used } }>): Promise<void> {
    const byTenant = Map.groupBy(running, ({ tenant }) => tenant);
    await Promise.all(
      [...byTenant].map(async ([tenant, entries]) => {
        try {
          await this.#options.account(tenant).renew(entries.map(({ progress }) => progress));
        } catch (error) {
          this.#options.onTrouble(String(error));
        }
      }),
    );
  }

  #owe(tenant: string, settlement: Settlement): void {
    if (this.#owedCount >= MAX_OWED) {
      this.#options.onTrouble(`settlement of ${settlement.id} given up`);
      return;
    }
    this.#line(tenant).settlements.push(settlement);
    this.#owedCount += 1;
  }

  #line(tenant: string): Line {
    let line = this.#lines.get(tenant);
    if (line === undefined) {
      line = { settlements: [], asked: [], isServed: false };
      this.#lines.set(tenant, line);
    }
    return line;
  }

  /** Until nobody waits to be let in. */
  async #serve(tenant: string, line: Line): Promise<void> {
    if (line.isServed) return;
    line.isServed = true;
    // What comes in the same breath goes in the same call.
    await Promise.resolve();
    do {
      const { settlements, asked } = line;
      line.settlements = [];
      line.asked = [];
      this.#owedCount -= settlements.length;
      await this.#call(tenant, settlements, asked);
    } while (line.asked.length > 0);
    line.isServed = false;
    if (line.settlements.length === 0) this.#lines.delete(tenant);
  }

  async #call(tenant: string, settlements: Settlement[], asked: readonly Asked[]): Promise<void> {
    const account = this.#options.account(tenant);
    try {
      const replies = await account.serve(
        settlements,
        asked.map(({ application }) => application),
      );
      for (const [index, one] of asked.entries()) {
        const reply = replies[index];
        // Nobody else waits for its wait.
        if (reply === undefined) account.admit(one.application).then(one.resolve, error => this.#failed(tenant, one, error));
        else one.resolve(reply);
      }
    } catch (error) {
      if (settlements.length > 0) this.#options.onTrouble(String(error));
      for (const settlement of settlements) this.#owe(tenant, settlement);
      for (const one of asked) this.#failed(tenant, one, error);
    }
  }

  #failed(tenant: string, { application, model, reject }: Asked, error: unknown): void {
    this.#owe(tenant, { id: application.request.id, model, used: undefined });
    reject(error);
  }
}
