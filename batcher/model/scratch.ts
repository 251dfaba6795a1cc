/**
 * Scratch: arrays that are used again for each chunk of a conversion, by name; large arrays made anew would be freed too late to
 * keep memory flat. What a call gives is valid until the next call of the same name, and its old content is undefined.
 */
export class Scratch {
  readonly #bytes = new Map<string, Uint8Array>();
  readonly #floats = new Map<string, Float32Array>();

  bytes(name: string, length: number): Uint8Array {
    let array = this.#bytes.get(name);
    if (array === undefined || array.length < length) {
      array = new Uint8Array(length);
      this.#bytes.set(name, array);
    }
    return array.subarray(0, length);
  }

  floats(name: string, length: number): Float32Array {
    let array = this.#floats.get(name);
    if (array === undefined || array.length < length) {
      array = new Float32Array(length);
      this.#floats.set(name, array);
    }
    return array.subarray(0, length);
  }
}
