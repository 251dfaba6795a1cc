/** NativeArray: memory outside the JavaScript heap that C code may hold on to, with typed views on it; freed by close and not before. */
import { type Address, mapMemory, unmapMemory, viewMemory } from './foreign.ts';

export class NativeArray {
  readonly address: Address;
  readonly bytes: number;
  readonly #buffer: ArrayBuffer;

  constructor(bytes: number) {
    this.bytes = Math.max(8, bytes);
    this.address = mapMemory(this.bytes);
    this.#buffer = viewMemory(this.address, this.bytes);
  }

  static ofAddresses(addresses: readonly Address[]): NativeArray {
    const array = new NativeArray(addresses.length * 8);
    array.bigint64().set(addresses);
    return array;
  }

  /** Zero-terminated strings and, in front of them, the array of their addresses. */
  static ofStrings(strings: readonly string[]): NativeArray {
    const encoded = strings.map(string => new TextEncoder().encode(`${string}\0`));
    const pointerBytes = strings.length * 8;
    const array = new NativeArray(encoded.reduce((sum, text) => sum + text.length, pointerBytes));
    const bytes = new Uint8Array(array.#buffer);
    const pointers = array.bigint64();
    let offset = pointerBytes;
    encoded.forEach((text, index) => {
      bytes.set(text, offset);
      pointers[index] = array.address + BigInt(offset);
      offset += text.length;
    });
    return array;
  }

  float32(length?: number): Float32Array {
    return new Float32Array(this.#buffer, 0, length ?? this.bytes >> 2);
  }

  int32(): Int32Array {
    return new Int32Array(this.#buffer, 0, this.bytes >> 2);
  }

  bigint64(): BigInt64Array {
    return new BigInt64Array(this.#buffer, 0, this.bytes >> 3);
  }

  close(): void {
    unmapMemory(this.address, this.bytes);
  }
}
