/** FreePort: which TCP ports can be listened on now. Another process may be quicker, so who uses the answer must be ready to ask again. */
import { createServer } from 'node:net';
import { StartError } from './start-error.ts';

/** A port that nobody listens on, chosen by the system. */
export async function freePort(host = '127.0.0.1'): Promise<number> {
  return listenOnce(0, host);
}

/** The port itself, or a free one for 0; throws a StartError that says why it cannot be had. */
export async function claimPort(port: number, host: string): Promise<number> {
  try {
    return await listenOnce(port, host === '*' ? undefined : host);
  } catch (thrown) {
    throw new StartError(`${reason(thrown, port, host)}`, { cause: thrown });
  }
}

function reason(thrown: unknown, port: number, host: string): string {
  const code = (thrown as NodeJS.ErrnoException).code;
  switch (code) {
    case 'EADDRINUSE':
      return `Port ${port} is taken by another program. Choose another with --port, or --port 0 for any free one.`;
    case 'EACCES':
      return `Port ${port} may not be used by this user: ports below 1024 are root's. Choose another with --port.`;
    case 'EADDRNOTAVAIL':
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return `--host ${host} is no address of this machine.`;
    default:
      return `Cannot listen on ${host}:${port}: ${(thrown as Error).message}`;
  }
}

function listenOnce(port: number, host: string | undefined): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen({ port, host, exclusive: true }, () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : port));
    });
  });
}
