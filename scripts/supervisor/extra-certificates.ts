/**
 * ExtraCertificates: authorities that this machine trusts besides the public ones, for a Redis whose certificate is home-made. They are named
 * by NODE_EXTRA_CA_CERTS, which Node itself reads for the batchers; workerd must be told.
 */
import { readFileSync } from 'node:fs';
import { StartError } from './start-error.ts';

const VARIABLE = 'NODE_EXTRA_CA_CERTS';
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;

/** Each as PEM. Throws a StartError when the file is not what it should be: Node would only warn. */
export function extraCertificates(environment: NodeJS.ProcessEnv): string[] {
  const path = environment[VARIABLE];
  if (path === undefined || path === '') return [];
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw new StartError(`${VARIABLE} names ${path}, which cannot be read (${(error as NodeJS.ErrnoException).code}).`);
  }
  const certificates = text.match(CERTIFICATE) ?? [];
  if (certificates.length === 0) throw new StartError(`${VARIABLE} names ${path}, which holds no certificate in PEM form.`);
  return certificates.map(certificate => `${certificate}\n`);
}
