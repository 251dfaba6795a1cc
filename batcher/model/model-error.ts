/** ModelError: a model file or a cache that cannot be used, said in one line that names what is wrong and what would be right. */
export class ModelError extends Error {
  constructor(message: string, detail: { cause?: unknown } = {}) {
    super(oneLine(message), { cause: detail.cause });
    this.name = 'ModelError';
  }
}

/** Names come from files that may be damaged or hostile: nothing in them may break the line or fill the screen. */
function oneLine(message: string): string {
  const line = message.replace(/\p{Cc}+/gu, ' ');
  return line.length <= MAX_LENGTH ? line : `${line.slice(0, MAX_LENGTH)} …`;
}

const MAX_LENGTH = 1000;

/** What a system call complained of, without its stack: `ENOSPC: no space left on device`. */
export function reasonOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
