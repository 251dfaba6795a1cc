/**
 * WorkerManifest: what a runtime must know of the gateway Worker besides its code. wrangler.toml says the same for wrangler;
 * a test holds the two together.
 */

/** Not past the newest date that the installed workerd knows. From 2026-08-04 on `nodejs_compat` is no flag any more, and wrangler still asks for it. */
export const COMPATIBILITY_DATE = '2026-08-01';

/** `enable_request_signal`: without it a Worker is never told that its caller has left. */
export const COMPATIBILITY_FLAGS = ['nodejs_compat', 'enable_request_signal'] as const;

export interface DurableObjectClass {
  /** Name of the binding in `env`. */
  binding: string;
  /** Class exported by gateway/app.ts. */
  className: string;
  /** It holds open connections, so it must not be put out of memory when it has been idle for some seconds. */
  staysInMemory: boolean;
}

export const DURABLE_OBJECTS: readonly DurableObjectClass[] = [
  { binding: 'BROKER', className: 'Broker', staysInMemory: true },
  { binding: 'TENANT', className: 'Tenant', staysInMemory: false },
  { binding: 'DIRECTORY', className: 'Directory', staysInMemory: false },
  { binding: 'BATCHES', className: 'Batches', staysInMemory: false },
];
