/** Uploads from clients that lie, flood, garble or disappear: a clear refusal, nothing kept, and a gateway that goes on. */
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { adminClient } from './admin-client.ts';
import { type ErrorReply, eventually, type Stack, startStack } from './stack.ts';

const MAX_FILE_BYTES = 200_000;
const MAX_STORED_BYTES = 500_000;

let stack: Stack;
beforeAll(async () => {
  stack = await startStack({
    bindings: { SLUICE_MAX_FILE_BYTES: String(MAX_FILE_BYTES), SLUICE_FILES_BYTES: String(MAX_STORED_BYTES) },
  });
});
afterAll(() => stack.stop());

let tenantCount = 0;
/** Of a tenant of its own, which has nothing yet. */
async function newKey(): Promise<string> {
  return (await adminClient(stack.gateway).makeKey({ tenant: `t${++tenantCount}` })).key;
}

const send = (key: string, body: unknown, init: RequestInit & { duplex?: 'half' } = {}) =>
  fetch(`${stack.gateway.url}/v1/files`, {
    method: 'POST',
    ...init,
    headers: { authorization: `Bearer ${key}`, ...init.headers },
    body: body as string,
  });

function form(fields: Record<string, string | Blob | undefined> = {}): FormData {
  const data = new FormData();
  const all = { purpose: 'batch', file: new File(['{"a":1}\n'], 'input.jsonl'), ...fields };
  for (const [name, value] of Object.entries(all)) if (value !== undefined) data.append(name, value as string);
  return data;
}

async function fault(reply: Response): Promise<[number, string, string | null]> {
  const { error } = (await reply.json()) as ErrorReply;
  return [reply.status, error.code, error.param];
}

const list = async (key: string) => {
  const reply = await fetch(`${stack.gateway.url}/v1/files`, { headers: { authorization: `Bearer ${key}` } });
  return ((await reply.json()) as { data: { id: string; bytes: number; filename: string }[] }).data;
};

describe('what is wrong is said', () => {
  const two = form();
  two.append('file', new File(['{}'], 'second'));
  test.each<[string, FormData, string | null, string]>([
    ['no purpose', form({ purpose: undefined }), 'purpose', 'missing_required_parameter'],
    ['another purpose', form({ purpose: 'fine-tune' }), 'purpose', 'invalid_value'],
    ['no file', form({ file: undefined }), 'file', 'missing_required_parameter'],
    ['an empty file', form({ file: new File([], 'x') }), 'file', 'invalid_value'],
    ['two files', two, 'file', 'invalid_value'],
    ['a field without end', form({ purpose: 'x'.repeat(50_000) }), 'purpose', 'invalid_value'],
    [
      'another anchor',
      form({ 'expires_after[anchor]': 'now', 'expires_after[seconds]': '3600' }),
      'expires_after[anchor]',
      'invalid_value',
    ],
    ['no time', form({ 'expires_after[anchor]': 'created_at' }), 'expires_after[seconds]', 'invalid_value'],
    [
      'too short a time',
      form({ 'expires_after[anchor]': 'created_at', 'expires_after[seconds]': '1' }),
      'expires_after[seconds]',
      'invalid_value',
    ],
    [
      'too long a time',
      form({ 'expires_after[anchor]': 'created_at', 'expires_after[seconds]': '9999999999' }),
      'expires_after[seconds]',
      'invalid_value',
    ],
  ])('%s', async (_, data, param, code) => {
    const key = await newKey();
    expect(await fault(await send(key, data))).toEqual([400, code, param]);
    expect(await list(key)).toEqual([]);
  });

  test.each<[string, string | Uint8Array | undefined, string | undefined]>([
    ['JSON', '{"purpose":"batch"}', 'application/json'],
    ['nothing', undefined, undefined],
    ['a form without a boundary', 'x', 'multipart/form-data'],
    ['a form that is none', 'x'.repeat(30_000), 'multipart/form-data; boundary=abc'],
    ['a form that ends too early', '--abc\r\nContent-Disposition: form-data; name="file"\r\n\r\n{}', 'multipart/form-data; boundary=abc'],
    ['zeros', new Uint8Array(50_000), 'multipart/form-data; boundary=abc'],
  ])('%s', async (_, body, type) => {
    const key = await newKey();
    const reply = await send(key, body, type === undefined ? {} : { headers: { 'content-type': type } });
    expect((await fault(reply)).slice(0, 2)).toEqual([400, 'invalid_value']);
    expect(await list(key)).toEqual([]);
  });
});

test('names lead nowhere, and a time that is asked for is kept to', async () => {
  const key = await newKey();
  const data = form({ 'expires_after[anchor]': 'created_at', 'expires_after[seconds]': '7200' });
  data.set('file', new File(['{}'], '../../etc/passwd'));
  const file = (await (await send(key, data)).json()) as { filename: string; created_at: number; expires_at: number };
  expect([file.filename, file.expires_at - file.created_at]).toEqual(['passwd', 7_200]);
  expect((await list(key)).map(({ filename }) => filename)).toEqual(['passwd']);
});

describe('too much', () => {
  test('a file that is too large, by its own account or without one', async () => {
    const key = await newKey();
    for (const bytes of [2 * MAX_FILE_BYTES, 30_000_000]) {
      const reply = await send(key, form({ file: new Blob(['x'.repeat(bytes)]) }));
      expect(await fault(reply)).toEqual([413, 'body_too_large', 'file']);
    }
    async function* pieces() {
      yield Buffer.from('--abc\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n');
      for (let i = 0; i < 5; i++) yield Buffer.alloc(50_000, 120);
      yield Buffer.from('\r\n--abc--\r\n');
    }
    const body = ReadableStream.from(pieces());
    const reply = await send(key, body, { headers: { 'content-type': 'multipart/form-data; boundary=abc' }, duplex: 'half' });
    expect(await fault(reply)).toEqual([413, 'body_too_large', 'file']);
    expect(await list(key)).toEqual([]);
  });

  test('more than a tenant may have; what is deleted makes room again', async () => {
    const key = await newKey();
    const large = () => form({ file: new Blob(['x'.repeat(190_000)]) });
    const first = (await (await send(key, large())).json()) as { id: string };
    expect((await send(key, large())).status).toBe(200);
    expect(await fault(await send(key, large()))).toEqual([413, 'storage_full', 'file']);
    // Others have their own.
    expect((await send(await newKey(), large())).status).toBe(200);
    const gone = await fetch(`${stack.gateway.url}/v1/files/${first.id}`, {
      method: 'DELETE',
      headers: { authorization: `Bearer ${key}` },
    });
    expect(gone.status).toBe(200);
    expect((await send(key, large())).status).toBe(200);
  });

  test('too many at once; who disappears leaves nothing behind', async () => {
    const key = await newKey();
    const { port } = new URL(stack.gateway.url);
    const head = [
      'POST /v1/files HTTP/1.1',
      `host: 127.0.0.1:${port}`,
      `authorization: Bearer ${key}`,
      'content-type: multipart/form-data; boundary=abc',
      'content-length: 150000\r\n\r\n',
    ].join('\r\n');
    const part = `--abc\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n${'x'.repeat(50_000)}`;
    const sockets = Array.from({ length: 8 }, () => {
      const socket = connect(Number(port), '127.0.0.1', () => socket.write(head + part));
      return socket.on('error', () => undefined);
    });
    await eventually('no more to be taken', async () => (await send(key, form())).status === 429);
    for (const socket of sockets) socket.destroy();
    await eventually('them to be forgotten', async () => (await send(key, form())).status === 200);
    expect((await list(key)).every(file => file.filename === 'input.jsonl')).toBe(true);
    // Nothing of theirs counts.
    for (const bytes of [190_000, 190_000]) expect((await send(key, form({ file: new Blob(['x'.repeat(bytes)]) }))).status).toBe(200);
  });

  test('without a key nothing is kept, and it is said why', async () => {
    for (const bytes of [10, 50_000])
      expect((await send('sk-sluice-none', form({ file: new Blob(['x'.repeat(bytes)]) }))).status).toBe(401);
  });
});

test('what is stored comes back byte for byte, and survives the gateway', async () => {
  const key = await newKey();
  const bytes = Buffer.from(Array.from({ length: 150_000 }, (_, index) => (index * 7919) % 256));
  const { id } = (await (await send(key, form({ file: new Blob([bytes]) }))).json()) as { id: string };
  const read = async () => {
    const reply = await fetch(`${stack.gateway.url}/v1/files/${id}/content`, { headers: { authorization: `Bearer ${key}` } });
    return Buffer.from(await reply.arrayBuffer());
  };
  expect((await read()).equals(bytes)).toBe(true);
  await stack.gateway.restart();
  expect((await read()).equals(bytes)).toBe(true);
});
