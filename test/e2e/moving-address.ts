/** MovingAddress: one address that leads to a server on this machine, and from one moment to the next to another; connections stay where they went, unless cut. */
import { connect, createServer, type Server, type Socket } from 'node:net';

export class MovingAddress {
  readonly #server: Server;
  readonly #open = new Set<Socket>();
  #target: number;

  private constructor(target: number) {
    this.#target = target;
    this.#server = createServer(client => {
      const server = connect(this.#target, '127.0.0.1');
      client.pipe(server).pipe(client);
      const end = () => {
        client.destroy();
        server.destroy();
        this.#open.delete(client);
      };
      this.#open.add(client);
      for (const socket of [client, server]) socket.on('error', () => undefined).on('close', end);
    });
  }

  static async open(target: number): Promise<MovingAddress> {
    const address = new MovingAddress(target);
    await new Promise<void>(resolve => address.#server.listen(0, '127.0.0.1', resolve));
    return address;
  }

  get port(): number {
    return (this.#server.address() as { port: number }).port;
  }

  /** For new connections. */
  moveTo(target: number): void {
    this.#target = target;
  }

  cut(): void {
    for (const client of this.#open) client.destroy();
  }

  close(): void {
    this.#server.close();
    this.cut();
  }
}
