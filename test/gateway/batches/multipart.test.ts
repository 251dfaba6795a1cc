/** Multipart: whatever the sizes of the pieces, the parts are the same; what is no such body is refused. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { boundaryOf, formParts } from '../../../gateway/batches/multipart.ts';

async function* inPieces(text: string, sizes: readonly number[] = []): AsyncGenerator<Uint8Array> {
  const bytes = new TextEncoder().encode(text);
  let at = 0;
  for (let i = 0; at < bytes.length; i++) {
    const size = sizes.length === 0 ? bytes.length : sizes[i % sizes.length]!;
    yield bytes.slice(at, at + size);
    at += size;
  }
}

async function parts(text: string, sizes?: readonly number[], boundary = 'XX') {
  const found: { name: string; filename: string | undefined; text: string }[] = [];
  for await (const { name, filename, content } of formParts(inPieces(text, sizes), boundary)) {
    const pieces: Uint8Array[] = [];
    for await (const piece of content) pieces.push(piece.slice());
    found.push({ name, filename, text: Buffer.concat(pieces).toString() });
  }
  return found;
}

const FILE = '{"a":1}\r\n--X\r\n--XY\n\r\n';
const FORM = [
  '--XX\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n',
  `--XX\r\nContent-Type: a/b\r\ncontent-disposition: form-data; name="file"; filename="a%22 \\"b.jsonl"\r\n\r\n${FILE}\r\n`,
  '--XX--\r\nwhat follows is nobody’s',
].join('');

test('the same parts, in pieces of any size', async () => {
  const whole = await parts(FORM);
  expect(whole).toEqual([
    { name: 'purpose', filename: undefined, text: 'batch' },
    { name: 'file', filename: 'a" "b.jsonl', text: FILE },
  ]);
  await fc.assert(
    fc.asyncProperty(fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 8 }), async sizes => {
      expect(await parts(FORM, sizes)).toEqual(whole);
    }),
  );
});

test('as browsers and clients write it', async () => {
  const form = new FormData();
  form.append('expires_after[anchor]', 'created_at');
  form.append('file', new File(['ä\n'], 'ü.jsonl'));
  const response = new Response(form);
  const found = await parts(await response.text(), [3], boundaryOf(response.headers.get('content-type')!));
  expect(found).toEqual([
    { name: 'expires_after[anchor]', filename: undefined, text: 'created_at' },
    { name: 'file', filename: 'ü.jsonl', text: 'ä\n' },
  ]);
});

test('what is left unread of a part is passed over', async () => {
  const names: string[] = [];
  for await (const part of formParts(inPieces(FORM, [5]), 'XX')) names.push(part.name);
  expect(names).toEqual(['purpose', 'file']);
});

test.each([
  ['nothing', '', 'ends too early'],
  ['no end', '--XX\r\nContent-Disposition: form-data; name="a"\r\n\r\nbatch', 'ends too early'],
  ['no name', '--XX\r\nContent-Type: a/b\r\n\r\nbatch\r\n--XX--', 'no name'],
  ['no head', '--XX\r\n\r\nbatch\r\n--XX--', 'no name'],
  ['a head without end', `--XX\r\n${'a'.repeat(20_000)}`, 'head of a part is too long'],
  ['something else behind a boundary', '--XXY\r\n', 'followed by something else'],
  ['no boundary for long', 'a'.repeat(100_000), 'boundary does not come'],
  ['very many parts', '--XX\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n'.repeat(50), 'more than 32 parts'],
])('%s', async (_, body, message) => {
  await expect(parts(body, [1_000])).rejects.toMatchObject({ code: 'invalid_value', message: expect.stringContaining(message) });
});

test.each([
  ['multipart/form-data; boundary=abc', 'abc'],
  ['Multipart/Form-Data; charset=x; boundary="a b"', 'a b'],
  ['multipart/form-data', undefined],
  ['multipart/form-data; boundary=', undefined],
  [`multipart/form-data; boundary=${'a'.repeat(71)} `, undefined],
  ['application/json', undefined],
  [undefined, undefined],
])('the boundary of %s', (type, boundary) => {
  expect(boundaryOf(type)).toBe(boundary);
});
