/** LiteLLM: the proxy of PyPI's litellm in the ignored folder .peers/, one worker, in front of an OpenAI-compatible upstream. */
import { writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Peer } from '../gateway-side.ts';
import { type PeerRun, pipFolder } from './package-folder.ts';

const VERSION = '1.106.12';
const KEY = 'sk-bench';

export async function installLitellm(run: PeerRun): Promise<Peer> {
  const folder = await pipFolder(`litellm-${VERSION}`, `litellm[proxy]==${VERSION}`, run);
  return {
    name: 'LiteLLM',
    version: VERSION,
    async command({ port, upstreamPort }) {
      const path = join(tmpdir(), `sluice-bench-litellm-${process.pid}.json`);
      // JSON is YAML.
      const configuration = {
        model_list: [
          {
            model_name: 'default',
            litellm_params: { model: 'openai/default', api_base: `http://127.0.0.1:${upstreamPort}/v1`, api_key: 'none' },
          },
        ],
        general_settings: { master_key: KEY },
      };
      await writeFile(path, JSON.stringify(configuration));
      const program = 'import sys; from litellm import run_server; run_server(sys.argv[1:])';
      return ['python3', '-c', program, '--config', path, '--host', '127.0.0.1', '--port', String(port), '--telemetry', 'False'];
    },
    headers: () => ({ authorization: `Bearer ${KEY}` }),
    refusedHeaders: { authorization: 'Bearer wrong' },
    environment: {
      PYTHONPATH: folder,
      LITELLM_MODE: 'PRODUCTION',
      // Else it fetches a list of prices at its start.
      LITELLM_LOCAL_MODEL_COST_MAP: 'True',
    },
  };
}
