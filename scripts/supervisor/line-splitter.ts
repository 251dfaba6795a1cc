/** LineSplitter: bytes of one stream to whole lines; a line without an end is cut at LINE_CHARS, so that memory stays bounded. */
import { StringDecoder } from 'node:string_decoder';

const LINE_CHARS = 16_384;

export class LineSplitter {
  #decoder = new StringDecoder('utf8');
  #rest = '';
  #emit: (line: string) => void;

  constructor(emit: (line: string) => void) {
    this.#emit = emit;
  }

  write(bytes: Buffer): void {
    this.#take(this.#decoder.write(bytes));
  }

  /** The stream has ended: hands out what is left without a line end. */
  end(): void {
    this.#take(this.#decoder.end());
    if (this.#rest !== '') this.#emit(this.#rest);
    this.#rest = '';
  }

  #take(text: string): void {
    const lines = (this.#rest + text).split(/\r?\n/);
    this.#rest = lines.pop() ?? '';
    for (const line of lines) this.#emit(line.slice(0, LINE_CHARS));
    while (this.#rest.length > LINE_CHARS) {
      this.#emit(this.#rest.slice(0, LINE_CHARS));
      this.#rest = this.#rest.slice(LINE_CHARS);
    }
  }
}
