/**
 * KeyMac: the part of a key that only this gateway can make: an HMAC-SHA-256 over tenant and key id (RFC 2104), so that a key is checked
 * without I/O. The runtime compares, in constant time. A second secret is still believed while keys made with it are being replaced.
 */

/** 32 bytes in base64url; the last letter has two bits to spare, which must be zero, or one key would have four spellings. */
export const MAC_PATTERN = '[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]';

const encoder = new TextEncoder();
const ALGORITHM = { name: 'HMAC', hash: 'SHA-256' };

export class KeyMac {
  readonly #secrets: readonly string[];
  /** Imported at the first use: a runtime does no cryptography while a Worker starts. */
  #keys: readonly CryptoKey[] | undefined;

  /** The first one makes new keys, all of them are believed. */
  constructor(secrets: readonly string[]) {
    this.#secrets = secrets;
  }

  get canSign(): boolean {
    return this.#secrets.length > 0;
  }

  async sign(tenant: string, keyId: string): Promise<string> {
    const [key] = await this.#imported();
    if (key === undefined) throw new Error('no secret to sign with');
    return toBase64url(new Uint8Array(await crypto.subtle.sign(ALGORITHM.name, key, message(tenant, keyId))));
  }

  async isValid(tenant: string, keyId: string, mac: string): Promise<boolean> {
    const bytes = fromBase64url(mac);
    for (const key of await this.#imported()) {
      if (await crypto.subtle.verify(ALGORITHM.name, key, bytes, message(tenant, keyId))) return true;
    }
    return false;
  }

  async #imported(): Promise<readonly CryptoKey[]> {
    this.#keys ??= await Promise.all(
      this.#secrets.map(secret => crypto.subtle.importKey('raw', encoder.encode(secret), ALGORITHM, false, ['sign', 'verify'])),
    );
    return this.#keys;
  }
}

/** Neither name holds a line end; the first line keeps other uses of the same secret apart. */
function message(tenant: string, keyId: string): Uint8Array {
  return encoder.encode(`sluice key 1\n${tenant}\n${keyId}`);
}

function toBase64url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '');
}

function fromBase64url(text: string): Uint8Array {
  const letters = atob(text.replaceAll('-', '+').replaceAll('_', '/'));
  const bytes = new Uint8Array(letters.length);
  for (let index = 0; index < bytes.length; index++) bytes[index] = letters.charCodeAt(index);
  return bytes;
}
