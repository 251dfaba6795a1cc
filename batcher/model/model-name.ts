/** ModelName: what clients call a model: its file's name in lower case, without the ending and without the quantization. */
import { basename } from 'node:path';

/** `.Q4_1`, `-Q4_K_M`, `_iq3_xs`, `-f16`, `.bf16`: what converters put behind a name. */
const QUANTIZATION = /[._-](?:i?q\d[a-z0-9]*(?:_[a-z0-9]+)*|b?f(?:p)?(?:16|32|8)|mxfp4)$/;

/** Only letters, digits, dot, dash and underscore: the name becomes part of file names, queue names and URLs. */
export function modelNameOf(path: string): string {
  const stem = basename(path)
    .toLowerCase()
    .replace(/\.gguf$/, '');
  const name = stem
    .replace(QUANTIZATION, '')
    .replace(/[^a-z0-9._-]+/g, '-')
    .replace(/^[-.]+|[-.]+$/g, '');
  return name === '' ? 'model' : name;
}
