/** RedisPrompt: a few plain commands to a Redis on this machine over one connection, without a client library's start-up time. */
import { connect } from 'node:net';

const PATIENCE_MS = 2_000;

export interface RedisAddress {
  port: number;
  /** Without white space or quotes: commands go out in their inline form. */
  password: string;
}

/**
 * The first line of each command's reply, `+PONG` or `-ERR …` or `:1`. A connection that closes early gives fewer lines than
 * commands, as SHUTDOWN does; one that cannot be made gives none.
 */
export function askRedis({ port, password }: RedisAddress, commands: readonly string[]): Promise<string[]> {
  return new Promise(resolve => {
    const socket = connect({ port, host: '127.0.0.1' });
    let reply = '';
    const lines = () => reply.split('\r\n').slice(0, -1);
    // The first is the answer to AUTH; who may not ask gets its refusal.
    const finish = () => {
      socket.destroy();
      const [authenticated, ...rest] = lines();
      resolve(authenticated === undefined || authenticated === '+OK' ? rest : [authenticated]);
    };
    socket.setTimeout(PATIENCE_MS, finish);
    socket.on('data', bytes => {
      reply += bytes.toString('latin1');
      if (lines().length > commands.length) finish();
    });
    socket.on('error', finish);
    socket.on('close', finish);
    socket.on('connect', () => socket.write([`AUTH ${password}`, ...commands].map(line => `${line}\r\n`).join('')));
  });
}
