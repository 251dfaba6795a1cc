/** HttpConnection against a real server that cuts its replies at every place. */
import net from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { HttpConnection } from '../../bench/http-connection.ts';

let server: net.Server | undefined;
afterEach(() => server?.close());

/** Answers each request with the pieces, one packet each. */
async function serve(pieces: readonly string[]): Promise<HttpConnection> {
  server = net.createServer(socket => {
    socket.setNoDelay(true);
    socket.on('data', async () => {
      for (const piece of pieces) {
        socket.write(piece);
        await new Promise(resolve => setImmediate(resolve));
      }
    });
    socket.on('error', () => undefined);
  });
  await new Promise<void>(resolve => server!.listen(0, '127.0.0.1', resolve));
  return await HttpConnection.open((server.address() as net.AddressInfo).port, '" tok"');
}

const REQUEST = Buffer.from('GET / HTTP/1.1\r\n\r\n');
const CHUNKED =
  'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n' +
  'a\r\n{"c":" tok\r\n' + // the marker lies across two chunks
  '2\r\n"}\r\n' +
  '16\r\n " tok" data: [DONE]\n\n\r\n' +
  '0\r\n\r\n';

test.each([1, 2, 3, 7, 1_000])('a chunked reply in pieces of %d bytes, twice on one connection', async size => {
  const pieces = CHUNKED.match(new RegExp(`[^]{1,${size}}`, 'g'))!;
  const connection = await serve(pieces);
  for (let time = 0; time < 2; time++) {
    const reply = await connection.send(REQUEST);
    expect(reply).toMatchObject({ status: 200, markerCount: 2, tail: '{"c":" tok"} " tok" data: [DONE]\n\n' });
    expect(reply.firstMarkerMs).toBeGreaterThan(0);
  }
  connection.close();
});

test('a reply by its length, and none', async () => {
  const connection = await serve(['HTTP/1.1 401 Unauthorized\r\nContent-Length: 5\r\n\r\nhe', 'llo']);
  expect(await connection.send(REQUEST)).toEqual({ status: 401, firstMarkerMs: undefined, markerCount: 0, tail: 'hello' });
  connection.close();
  server!.close();
  const empty = await serve(['HTTP/1.1 204 No Content\r\n\r\n']);
  expect((await empty.send(REQUEST)).status).toBe(204);
  empty.close();
});

test('a connection that is cut rejects', async () => {
  server = net.createServer(socket => socket.on('data', () => socket.destroy()));
  await new Promise<void>(resolve => server!.listen(0, '127.0.0.1', resolve));
  const connection = await HttpConnection.open((server.address() as net.AddressInfo).port, 'x');
  await expect(connection.send(REQUEST)).rejects.toThrow();
});
