/**
 * Prefix: a prompt as text blocks with chained hashes, so that the edge finds who holds its beginning without a tokenizer.
 * Guarantee: both sides get the same hashes for the same prompt, and appending to a conversation changes none of its earlier ones.
 *
 *     prompt ──promptBytes──▶ bytes ──PrefixChain──▶ h1 h2 h3 …     h(i) = H(h(i-1), bytes 256·(i-1) … 256·i)
 *
 * The bytes of a conversation are its first system message, its tools (where most templates write them), then the other messages. Each field
 * stands behind a tag, a byte that UTF-8 never has, and ends where the next tag is: so different conversations have different bytes, and
 * appending a message, or text to the last field, only makes the bytes longer.
 *
 * H is SHA-256's compression function, each hash 66 bits of the state, salted with the tenant: with another tenant's text in hand it takes
 * some 2^66 tries to meet one of its hashes. Even then nothing is shared: a batcher compares tokens inside the tenant's own namespace, so a wrong match
 * costs a worse route and no more.
 */
import type { ChatMessage, Prompt } from './job.ts';
import { compress, initialState, SHA_256_BLOCK_BYTES } from './sha-256.ts';

/** Changes with the bytes or the hash: sides of different versions must not compare hashes. */
export const PREFIX_VERSION = 1;

/** Only whole blocks count. */
export const TEXT_BLOCK_BYTES = 256;

/** Characters of a hash, base64url, 6 bits each. */
export const HASH_LENGTH = 11;

/** In every runtime, though not in the language's own library. */
declare const TextEncoder: new () => { encodeInto(text: string, into: Uint8Array): { written: number } };

const TEXT = 0xc0;
const TOKENS = 0xc1;
const ROLES = { system: 0xf5, user: 0xf6, assistant: 0xf7, tool: 0xf8 } as const satisfies Record<ChatMessage['role'], number>;
const TOOL = 0xf9;
const NAME = 0xfa;
const RESULT_OF = 0xfb;
const CONTENT = 0xfc;
const CALL = 0xfd;
const CALLED_FUNCTION = 0xfe;
const CALL_ARGUMENTS = 0xff;

/** Of text and conversations; token ids are four plain bytes each. */
export function isTag(byte: number): boolean {
  return byte >= ROLES.system || byte === TEXT || byte === TOKENS;
}

/** The canonical bytes of a prompt. */
export function promptBytes(prompt: Prompt): Uint8Array {
  switch (prompt.kind) {
    case 'chat':
      return encode(chatParts(prompt.messages, prompt.tools ?? []));
    case 'text':
      return encode([TEXT, prompt.text]);
    case 'tokens': {
      const ids = tokenIdBytes(prompt.tokenIds);
      const bytes = new Uint8Array(1 + ids.length);
      bytes[0] = TOKENS;
      bytes.set(ids, 1);
      return bytes;
    }
  }
}

/** What comes between a prompt's bytes and the text (for token prompts: ids) of its answer, when the next turn sends both. */
export function answerHead(kind: Prompt['kind']): Uint8Array {
  return Uint8Array.from(kind === 'chat' ? [ROLES.assistant, CONTENT] : []);
}

/** Four bytes each, low first. */
export function tokenIdBytes(tokenIds: readonly number[]): Uint8Array {
  const bytes = new Uint8Array(4 * tokenIds.length);
  let at = 0;
  for (const id of tokenIds) {
    bytes[at] = id;
    bytes[at + 1] = id >>> 8;
    bytes[at + 2] = id >>> 16;
    bytes[at + 3] = id >>> 24;
    at += 4;
  }
  return bytes;
}

/** The hashes of a prompt's whole blocks. The tenant is the authenticated one, never a word of the request's. */
export function prefixHashes(prompt: Prompt, tenant: string): string[] {
  return new PrefixChain(tenant).push(promptBytes(prompt));
}

/** PrefixChain: the hash chain of one text that grows at its end. */
export class PrefixChain {
  readonly #state: Int32Array;
  /** Bytes of the block that is not whole yet. */
  readonly #tail = new Uint8Array(TEXT_BLOCK_BYTES);
  #byteCount = 0;

  /** Salted by the tenant, or going on where another stands. */
  constructor(from: string | PrefixChain) {
    if (typeof from === 'string') {
      this.#state = initialState();
      this.#salt(from);
    } else {
      this.#state = from.#state.slice();
      this.#tail.set(from.#tail);
      this.#byteCount = from.#byteCount;
    }
  }

  get byteCount(): number {
    return this.#byteCount;
  }

  /** Goes on by itself from where this one is. */
  fork(): PrefixChain {
    return new PrefixChain(this);
  }

  /** The hashes of the blocks that these bytes complete. */
  push(bytes: Uint8Array): string[] {
    const hashes: string[] = [];
    let at = 0;
    const inTail = this.#byteCount % TEXT_BLOCK_BYTES;
    if (inTail > 0) {
      at = Math.min(bytes.length, TEXT_BLOCK_BYTES - inTail);
      this.#tail.set(bytes.subarray(0, at), inTail);
      this.#byteCount += at;
      if (inTail + at < TEXT_BLOCK_BYTES) return hashes;
      hashes.push(this.#take(this.#tail, 0));
    }
    for (; at + TEXT_BLOCK_BYTES <= bytes.length; at += TEXT_BLOCK_BYTES) {
      this.#byteCount += TEXT_BLOCK_BYTES;
      hashes.push(this.#take(bytes, at));
    }
    this.#tail.set(bytes.subarray(at));
    this.#byteCount += bytes.length - at;
    return hashes;
  }

  #take(bytes: Uint8Array, offset: number): string {
    for (let at = 0; at < TEXT_BLOCK_BYTES; at += SHA_256_BLOCK_BYTES) compress(this.#state, bytes, offset + at);
    return hashText(this.#state);
  }

  /** Length and text in whole compression blocks, so that no two salts are alike. */
  #salt(tenant: string): void {
    const name = encode([`tenant ${tenant}`]);
    const block = new Uint8Array(Math.ceil((2 + name.length) / SHA_256_BLOCK_BYTES) * SHA_256_BLOCK_BYTES);
    block[0] = name.length;
    block[1] = name.length >>> 8;
    block.set(name, 2);
    for (let at = 0; at < block.length; at += SHA_256_BLOCK_BYTES) compress(this.#state, block, at);
  }
}

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';

/** The first 66 bits. */
function hashText(state: Int32Array): string {
  let text = '';
  for (let bit = 0; bit < 6 * HASH_LENGTH; bit += 6) {
    const word = bit >>> 5;
    const shift = bit & 31;
    const high = state[word]! << shift;
    const low = shift === 0 ? 0 : state[word + 1]! >>> (32 - shift);
    text += ALPHABET[(high | low) >>> 26];
  }
  return text;
}

/** Tags and texts in turn. */
type Part = number | string;

function chatParts(messages: readonly ChatMessage[], tools: readonly unknown[]): Part[] {
  const parts: Part[] = [];
  const first = messages[0];
  // The first only: if all leading ones stood before the tools, one more of them would move the tools.
  const leadCount = first?.role === 'system' ? 1 : 0;
  for (const message of messages.slice(0, leadCount)) addMessage(message, parts);
  // In the client's own order of keys, since the model sees that order too.
  for (const tool of tools) parts.push(TOOL, JSON.stringify(tool) ?? '');
  for (const message of messages.slice(leadCount)) addMessage(message, parts);
  return parts;
}

function addMessage(message: ChatMessage, parts: Part[]): void {
  parts.push(ROLES[message.role]);
  if (message.name !== undefined) parts.push(NAME, message.name);
  if (message.toolCallId !== undefined) parts.push(RESULT_OF, message.toolCallId);
  if (message.content !== null) parts.push(CONTENT, message.content);
  for (const call of message.toolCalls ?? []) {
    parts.push(CALL, call.id, CALLED_FUNCTION, call.function.name, CALL_ARGUMENTS, call.function.arguments);
  }
}

function encode(parts: readonly Part[]): Uint8Array {
  // A UTF-16 unit takes at most three bytes.
  const bytes = new Uint8Array(parts.reduce<number>((sum, part) => sum + (typeof part === 'number' ? 1 : 3 * part.length), 0));
  const encoder = new TextEncoder();
  let at = 0;
  for (const part of parts) {
    if (typeof part === 'number') bytes[at++] = part;
    else at += encoder.encodeInto(part, bytes.subarray(at)).written;
  }
  return bytes.subarray(0, at);
}
