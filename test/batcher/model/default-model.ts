/** DefaultModel: the real model for tests, prepared in the user's cache: SLUICE_TEST_GGUF, else the default one. */
import { fetchDefaultModel } from '../../../batcher/model/download.ts';
import { type PreparedModel, prepareModel } from '../../../batcher/model/prepare.ts';

export async function preparedDefaultModel(): Promise<PreparedModel> {
  return prepareModel(process.env.SLUICE_TEST_GGUF ?? (await fetchDefaultModel()));
}
