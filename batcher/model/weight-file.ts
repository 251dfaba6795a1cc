/** WeightFile: a data file of known size that is written in pieces, in any order, and is on the disk when it is finished. */
import { type FileHandle, open } from 'node:fs/promises';
import type { WeightSink } from './graph-weights.ts';

export class WeightFile implements WeightSink, AsyncDisposable {
  readonly #handle: FileHandle;

  private constructor(handle: FileHandle) {
    this.#handle = handle;
  }

  static async create(path: string, byteLength: number): Promise<WeightFile> {
    const handle = await open(path, 'wx');
    // Gaps between aligned weights read as zeros.
    await handle.truncate(byteLength);
    return new WeightFile(handle);
  }

  async write(offset: number, bytes: Uint8Array): Promise<void> {
    let done = 0;
    while (done < bytes.length) {
      const { bytesWritten } = await this.#handle.write(bytes, done, bytes.length - done, offset + done);
      done += bytesWritten;
    }
  }

  async finish(): Promise<void> {
    await this.#handle.sync();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#handle.close();
  }
}
