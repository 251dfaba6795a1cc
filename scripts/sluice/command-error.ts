/** CommandError: what a person can mend; one line and an exit code: 1 for what the gateway refused, 2 for what was asked wrongly. */
export class CommandError extends Error {
  readonly exitCode: 1 | 2;

  constructor(message: string, exitCode: 1 | 2) {
    super(message);
    this.name = 'CommandError';
    this.exitCode = exitCode;
  }
}
