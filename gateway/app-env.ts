/** AppEnv: what handlers find in their context; each variable's type comes from the middleware that sets it. */
import type { AdministratorVariables } from './administrator.ts';
import type { CallerVariables } from './api-key.ts';
import type { Env } from './env.ts';
import type { MeterVariables } from './metered.ts';
import type { LogVariables, RequestIdVariables } from './request-log.ts';

export interface AppEnv {
  Bindings: Env;
  Variables: RequestIdVariables & LogVariables & CallerVariables & MeterVariables & AdministratorVariables;
}
