/** DirectoryCall: how the Worker reaches the one directory of tenants. */
import type { Directory } from './directory.ts';
import type { Env } from './env.ts';

export function directoryObject(env: Env): DurableObjectStub<Directory> {
  return env.DIRECTORY.get(env.DIRECTORY.idFromName('main'));
}
