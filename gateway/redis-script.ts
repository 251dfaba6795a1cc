/** RedisScript: a Lua script that is sent once and then called by its digest: the text of a long one costs more to send than to run. */

/** Of ioredis what is used here. */
export interface ScriptClient {
  eval(script: string, keyCount: number, ...keysAndArguments: (string | number)[]): Promise<unknown>;
  evalsha(digest: string, keyCount: number, ...keysAndArguments: (string | number)[]): Promise<unknown>;
}

export class RedisScript {
  readonly #text: string;
  #digest: string | undefined;

  constructor(text: string) {
    this.#text = text;
  }

  async run(client: ScriptClient, keys: readonly string[], args: readonly (string | number)[]): Promise<unknown> {
    this.#digest ??= await sha1(this.#text);
    try {
      return await client.evalsha(this.#digest, keys.length, ...keys, ...args);
    } catch (error) {
      // A Redis that has just been started knows no script.
      if (!String(error).includes('NOSCRIPT')) throw error;
      return await client.eval(this.#text, keys.length, ...keys, ...args);
    }
  }
}

async function sha1(text: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-1', new TextEncoder().encode(text));
  return Array.from(new Uint8Array(digest), byte => byte.toString(16).padStart(2, '0')).join('');
}
