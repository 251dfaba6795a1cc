/** RedisScript: a Lua script that is sent once and then called by its digest: the text of a long one costs more to send than to run. */
import { textDigest } from './text-digest.ts';

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
    this.#digest ??= await textDigest(this.#text, 'SHA-1');
    try {
      return await client.evalsha(this.#digest, keys.length, ...keys, ...args);
    } catch (error) {
      // A Redis that has just been started knows no script.
      if (!String(error).includes('NOSCRIPT')) throw error;
      return await client.eval(this.#text, keys.length, ...keys, ...args);
    }
  }
}
