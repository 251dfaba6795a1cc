/**
 * ApiKey: who calls, told by the Authorization header (or `x-api-key`, as Anthropic's clients send it) alone: a forged key costs no I/O and
 * creates no object. Comparison takes the same time whatever the key. Whether a genuine key is still good is for its tenant's object to say.
 *
 *   sk-sluice-<tenant>-<key id>-<mac>      read from the right: the mac has a fixed length, the key id no hyphen
 */
import type { MiddlewareHandler } from 'hono';
import { TENANT_PATTERN } from '../shared/admin-wire.ts';
import { ApiError } from '../shared/errors.ts';
import type { Settings } from './env.ts';
import { KeyMac, MAC_PATTERN } from './key-mac.ts';
import { isSameText } from './same-text.ts';
import { DEVELOPMENT_KEY_ID } from './tenant/key-record.ts';

/** The owner of the key of a request. */
export interface Caller {
  tenant: string;
  keyId: string;
}

export interface CallerVariables {
  caller: Caller;
}

/** The operator may do everything with every tenant; the owner of a genuine key may do what its tenant's object says. */
export type Identity = { kind: 'key'; caller: Caller } | { kind: 'operator'; caller: Caller | undefined };

type KeySettings = Pick<Settings, 'developmentKey' | 'adminKey' | 'keySecret' | 'previousKeySecret'>;

export const DEVELOPMENT_TENANT = 'dev';
/** Longer ones are nobody's, and comparing them would be work for free. */
const MAX_KEY_LENGTH = 512;
/** Genuine keys that are remembered as such, for as long as this isolate lives: what is signed with our secret stays so. */
const MAX_KNOWN_KEYS = 1_000;
const FORM = new RegExp(`^sk-sluice-(${TENANT_PATTERN})-([a-z0-9]{1,32})-(${MAC_PATTERN})$`);

export class KeyReader {
  readonly #settings: KeySettings;
  readonly #mac: KeyMac;
  /** Looked up by a hash of the whole key, so that the time tells nothing of any part of one. */
  readonly #known = new Map<string, Identity>();

  constructor(settings: KeySettings) {
    this.#settings = settings;
    this.#mac = new KeyMac([settings.keySecret, settings.previousKeySecret].filter(secret => secret !== undefined));
  }

  get canMakeKeys(): boolean {
    return this.#mac.canSign;
  }

  /** The key itself, to be shown once. */
  async make(tenant: string, keyId: string): Promise<string> {
    return `sk-sluice-${tenant}-${keyId}-${await this.#mac.sign(tenant, keyId)}`;
  }

  /** Throws `invalid_api_key`; the message never repeats what was sent. */
  async identify(header: string | undefined): Promise<Identity> {
    const key = bearerKey(header);
    const { developmentKey, adminKey } = this.#settings;
    if (key.length > MAX_KEY_LENGTH) throw incorrect();
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    // The development key is one text in the bindings, without expiry or record: for a gateway on one's own machine.
    if (developmentKey !== undefined && isSameText(key, developmentKey)) {
      return { kind: 'operator', caller: { tenant: DEVELOPMENT_TENANT, keyId: DEVELOPMENT_KEY_ID } };
    }
    if (adminKey !== undefined && isSameText(key, adminKey)) return { kind: 'operator', caller: undefined };
    const [, tenant, keyId, mac] = FORM.exec(key) ?? [];
    if (tenant === undefined || keyId === undefined || mac === undefined) throw incorrect();
    if (!(await this.#mac.isValid(tenant, keyId, mac))) throw incorrect();
    const identity: Identity = { kind: 'key', caller: { tenant, keyId } };
    this.#known.set(key, identity);
    if (this.#known.size > MAX_KNOWN_KEYS) this.#known.delete(this.#known.keys().next().value!);
    return identity;
  }
}

/** Lets a request on only with a key that may be a tenant's. */
export function requireKey(settings: KeySettings): MiddlewareHandler<{ Variables: CallerVariables }> {
  const reader = new KeyReader(settings);
  return async function checkKey(c, next) {
    const { caller } = await reader.identify(keyHeader(c.req));
    if (caller === undefined)
      throw new ApiError('insufficient_scope', "The operator's key is for /admin only; here a tenant's key is needed.");
    c.set('caller', caller);
    await next();
  };
}

/** Of the two the one that names what it holds. */
function keyHeader(request: { header(name: string): string | undefined }): string | undefined {
  const key = request.header('x-api-key');
  return request.header('authorization') || (key === undefined || key === '' ? undefined : `Bearer ${key}`);
}

function bearerKey(header: string | undefined): string {
  if (header === undefined || header === '') {
    throw new ApiError(
      'invalid_api_key',
      "You didn't provide an API key. Send it in the header `Authorization: Bearer YOUR_KEY`, or `x-api-key: YOUR_KEY`.",
    );
  }
  const key = /^Bearer +([\x21-\x7e]+) *$/i.exec(header)?.[1];
  if (key === undefined) throw new ApiError('invalid_api_key', 'The Authorization header must have the form `Bearer YOUR_KEY`.');
  return key;
}

function incorrect(): ApiError {
  return new ApiError('invalid_api_key', 'Incorrect API key provided.');
}
