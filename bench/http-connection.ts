/**
 * HttpConnection: one connection of a load client, kept alive, one request at a time. It sends bytes that were made once and looks at no more
 * of a reply than its status, how often a marker occurs in it and when it first does, so that the load costs less than what is loaded.
 */
import net from 'node:net';

export interface HttpReply {
  status: number;
  /** From the request's first byte to the marker's first occurrence, in ms; undefined when it never occurred. */
  firstMarkerMs: number | undefined;
  markerCount: number;
  /** Of the body's end, for whoever wants to know how it ended; or of its whole, when that is short. */
  tail: string;
}

const TAIL_BYTES = 512;
const HEAD_END = Buffer.from('\r\n\r\n');
const LINE_END = Buffer.from('\r\n');
const EMPTY = Buffer.alloc(0);
const SILENCE_MS = 20_000;

interface Pending {
  startedAt: number;
  resolve(reply: HttpReply): void;
  reject(error: Error): void;
}

export class HttpConnection {
  readonly #socket: net.Socket;
  readonly #marker: Buffer;
  #rest: Buffer = EMPTY;
  #body: BodyReader | undefined;
  #status = 0;
  #pending: Pending | undefined;

  private constructor(socket: net.Socket, marker: Buffer) {
    this.#socket = socket;
    this.#marker = marker;
    socket.setNoDelay(true);
    socket.setTimeout(SILENCE_MS, () => socket.destroy(new Error(`nothing came for ${SILENCE_MS} ms`)));
    socket.on('data', bytes => this.#take(bytes));
    socket.on('error', error => this.#fail(error));
    socket.on('close', () => this.#fail(new Error('the connection was closed')));
  }

  static async open(port: number, marker: string): Promise<HttpConnection> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const socket = net.connect(port, '127.0.0.1', resolve);
    socket.once('error', reject);
    await promise;
    return new HttpConnection(socket, Buffer.from(marker));
  }

  /** Rejects when the connection fails; then it is of no more use. */
  send(request: Buffer): Promise<HttpReply> {
    return new Promise((resolve, reject) => {
      this.#pending = { startedAt: performance.now(), resolve, reject };
      this.#socket.write(request);
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  #take(bytes: Buffer): void {
    this.#rest = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    if (this.#body === undefined) {
      const end = this.#rest.indexOf(HEAD_END);
      if (end < 0) return;
      const head = this.#rest.toString('latin1', 0, end);
      this.#rest = this.#rest.subarray(end + HEAD_END.length);
      this.#status = Number(head.slice(9, 12));
      this.#body = new BodyReader(head, this.#marker, this.#pending?.startedAt ?? 0);
    }
    const taken = this.#body.take(this.#rest);
    this.#rest = this.#rest.subarray(taken);
    if (!this.#body.isWhole) return;
    const { firstMarkerMs, markerCount, tail } = this.#body;
    this.#body = undefined;
    const pending = this.#pending;
    this.#pending = undefined;
    pending?.resolve({ status: this.#status, firstMarkerMs, markerCount, tail });
  }

  #fail(error: Error): void {
    this.#pending?.reject(error);
    this.#pending = undefined;
  }
}

/** A body by its length, or in chunks (RFC 9112, 7.1). */
class BodyReader {
  firstMarkerMs: number | undefined;
  markerCount = 0;
  isWhole = false;
  #tail: Buffer = EMPTY;
  readonly #marker: Buffer;
  readonly #startedAt: number;
  readonly #isChunked: boolean;
  /** Of the body, or of the chunk that is being read. */
  #leftBytes: number;
  #isInChunk = false;

  constructor(head: string, marker: Buffer, startedAt: number) {
    this.#marker = marker;
    this.#startedAt = startedAt;
    this.#isChunked = /^transfer-encoding:.*chunked/im.test(head);
    this.#leftBytes = this.#isChunked ? 0 : Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0);
    this.isWhole = !this.#isChunked && this.#leftBytes === 0;
  }

  get tail(): string {
    return this.#tail.toString('utf8');
  }

  /** How many of the bytes were used. */
  take(bytes: Buffer): number {
    if (!this.#isChunked) {
      const count = Math.min(bytes.length, this.#leftBytes);
      this.#leftBytes -= count;
      this.#look(bytes.subarray(0, count));
      this.isWhole = this.#leftBytes === 0;
      return count;
    }
    let at = 0;
    while (!this.isWhole) {
      if (!this.#isInChunk) {
        const end = bytes.indexOf(LINE_END, at);
        if (end < 0) return at;
        const size = Number.parseInt(bytes.toString('latin1', at, end), 16);
        // The last chunk is empty, and so are its trailers.
        if (size === 0 && bytes.length < end + 4) return at;
        if (size === 0) {
          this.isWhole = true;
          return end + 4;
        }
        at = end + LINE_END.length;
        this.#leftBytes = size;
        this.#isInChunk = true;
      }
      const count = Math.min(bytes.length - at, this.#leftBytes);
      this.#look(bytes.subarray(at, at + count));
      this.#leftBytes -= count;
      at += count;
      if (this.#leftBytes > 0 || bytes.length < at + LINE_END.length) return at;
      at += LINE_END.length;
      this.#isInChunk = false;
    }
    return at;
  }

  #look(bytes: Buffer): void {
    if (bytes.length === 0) return;
    // A marker may lie across two pieces.
    const seam = Math.min(this.#tail.length, this.#marker.length - 1);
    const text = seam === 0 ? bytes : Buffer.concat([this.#tail.subarray(this.#tail.length - seam), bytes]);
    for (let at = text.indexOf(this.#marker); at >= 0; at = text.indexOf(this.#marker, at + this.#marker.length)) {
      this.firstMarkerMs ??= performance.now() - this.#startedAt;
      this.markerCount += 1;
    }
    const joined = bytes.length >= TAIL_BYTES ? bytes : Buffer.concat([this.#tail, bytes]);
    this.#tail = joined.subarray(Math.max(0, joined.length - TAIL_BYTES));
  }
}
