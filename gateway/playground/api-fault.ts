/** ApiFault: an error that the gateway told, as a status or within a stream, in words for a person. */

export class ApiFault extends Error {
  /** Undefined where it came within a stream. */
  readonly status: number | undefined;
  readonly code: string | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly requestId: string | undefined;

  constructor(body: unknown, response?: Response) {
    const error = (body as { error?: { message?: unknown; code?: unknown } } | null)?.error;
    const status = response?.status;
    super(
      typeof error?.message === 'string' ? error.message : `The gateway answered with status ${status ?? 'unknown'} and no explanation.`,
    );
    this.name = 'ApiFault';
    this.status = status;
    this.code = typeof error?.code === 'string' ? error.code : undefined;
    const seconds = Number(response?.headers.get('retry-after') ?? Number.NaN);
    this.retryAfterSeconds = Number.isFinite(seconds) ? seconds : undefined;
    this.requestId = response?.headers.get('x-request-id') ?? undefined;
  }

  /** The same call may succeed a little later. */
  get isPassing(): boolean {
    return this.status === undefined || this.status >= 500;
  }

  get details(): string {
    const parts = [
      this.status === undefined ? undefined : `HTTP ${this.status}`,
      this.code,
      this.retryAfterSeconds === undefined ? undefined : `try again in ${this.retryAfterSeconds} s`,
      this.requestId === undefined ? undefined : `request ${this.requestId}`,
    ];
    return parts.filter(part => part !== undefined).join(' · ');
  }
}

/** Of a reply that is no success. */
export async function faultOf(response: Response): Promise<ApiFault> {
  return new ApiFault(await response.json().catch(() => undefined), response);
}
