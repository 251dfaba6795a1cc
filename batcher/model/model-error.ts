/** ModelError: a model file or a cache that cannot be used, said in one line that names what is wrong and what would be right. */
export class ModelError extends Error {
  constructor(message: string, detail: { cause?: unknown } = {}) {
    super(message, { cause: detail.cause });
    this.name = 'ModelError';
  }
}

/** What a system call complained of, without its stack: `ENOSPC: no space left on device`. */
export function reasonOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
