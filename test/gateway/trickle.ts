/** Trickle: a TCP relay in front of a server, whose answers come through it a byte at a time. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setImmediate, setTimeout } from 'node:timers/promises';

export interface Trickle extends AsyncDisposable {
  port: number;
  /** Characters of several bytes that it has torn apart. */
  readonly tornCount: number;
}

export async function startTrickle(port: number): Promise<Trickle> {
  const sockets = new Set<Socket>();
  let tornCount = 0;
  const server = createServer(client => {
    const upstream = connect(port, '127.0.0.1');
    for (const socket of [client, upstream]) {
      sockets.add(socket.setNoDelay());
      socket.on('error', () => undefined).on('close', () => [client, upstream].forEach(side => void side.destroy()));
    }
    client.pipe(upstream);
    void drip(upstream, client, () => {
      tornCount += 1;
    }).catch(() => client.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    get tornCount() {
      return tornCount;
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

async function drip(from: Socket, to: Socket, torn: () => void): Promise<void> {
  for await (const data of from) {
    for (const byte of data as Buffer) {
      // What is within a character comes late, so that no read on the other side sees it whole.
      if (byte >= 0x80 && byte < 0xc0) {
        torn();
        await setTimeout(2);
      } else {
        await setImmediate();
      }
      to.write(Uint8Array.of(byte));
    }
  }
  to.end();
}
