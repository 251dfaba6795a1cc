/** PreparedFolders: a prepared model whose manifest, graph, vocabulary or data was damaged, cut, taken away or replaced by other things. */
import { cp, mkdir, mkdtemp, readFile, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadChat } from '../../batcher/model/chat-template.ts';
import { ModelError } from '../../batcher/model/model-error.ts';
import { openPrepared } from '../../batcher/model/prepare.ts';
import { damaged, distorted } from './strange-values.ts';
import type { PartSurface } from './surface.ts';

const SMALL_FILES = ['manifest.json', 'vocabulary.json', 'model.onnx'];
const DATA_FILE = 'model.onnx.data';

export const preparedFolders: PartSurface = {
  what: 'prepared folders: files damaged, cut, missing, replaced',
  async open({ directory }) {
    const folder = await mkdtemp(join(tmpdir(), 'sluice-fuzz-prepared-'));
    const originals = new Map(await Promise.all(SMALL_FILES.map(async name => [name, await readFile(join(directory, name))] as const)));
    return {
      async feed(dice) {
        const copy = join(folder, 'model');
        await rm(copy, { recursive: true, force: true });
        await mkdir(copy);
        for (const name of SMALL_FILES) await cp(join(directory, name), join(copy, name), { preserveTimestamps: true });
        await symlink(join(directory, DATA_FILE), join(copy, DATA_FILE));
        const name = dice.pick([...SMALL_FILES, 'manifest.json', DATA_FILE]);
        const path = join(copy, name);
        const bytes = originals.get(name);
        const what = dice.below(5);
        if (what === 0 || bytes === undefined) {
          await rm(path);
          if (dice.chance(0.4)) await mkdir(path);
          // A hole of the right or of a wrong length.
          else if (dice.chance(0.7)) await writeFile(path, '').then(() => truncate(path, dice.pick([0, 1, bytes?.length ?? 1 << 20])));
        } else if (what === 1 && name.endsWith('.json')) {
          await writeFile(path, JSON.stringify(distorted(name === 'manifest.json' ? JSON.parse(bytes.toString()) : {}, dice)) ?? '');
        } else {
          await writeFile(path, damaged(bytes, dice));
        }
        try {
          await loadChat(await openPrepared(copy));
          return 'harmless';
        } catch (thrown) {
          if (!(thrown instanceof ModelError)) throw thrown;
          return 'refused (ModelError)';
        }
      },
      close: () => rm(folder, { recursive: true, force: true }),
    };
  },
};
