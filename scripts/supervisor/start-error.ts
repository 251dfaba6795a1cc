/** StartError: what keeps the start from going on and the person at the terminal can mend; one clear line, exit code 2. */
export class StartError extends Error {
  constructor(message: string, detail: { cause?: unknown } = {}) {
    super(message, { cause: detail.cause });
    this.name = 'StartError';
  }
}
