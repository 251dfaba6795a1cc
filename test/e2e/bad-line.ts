/** BadLine: a TCP way to a server of this machine that breaks when a test says so, without a word to either side. */
import { connect, createServer, type Socket } from 'node:net';

export interface BadLine {
  url: string;
  /** Connections that are open now. */
  readonly openCount: number;
  /** Breaks every open connection; new ones get through. */
  cut(): void;
  close(): Promise<void>;
}

export async function startBadLine(targetPort: number): Promise<BadLine> {
  const sockets = new Set<Socket>();
  const server = createServer(client => {
    const target = connect(targetPort, '127.0.0.1');
    for (const [socket, other] of [
      [client, target],
      [target, client],
    ] as const) {
      sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        sockets.delete(socket);
        other.destroy();
      });
      socket.pipe(other);
    }
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the system gave no port');
  const cut = () => {
    for (const socket of sockets) socket.resetAndDestroy();
  };
  return {
    url: `http://127.0.0.1:${address.port}`,
    get openCount() {
      return sockets.size / 2;
    },
    cut,
    async close() {
      const closed = new Promise(resolve => server.close(resolve));
      cut();
      await closed;
    },
  };
}
