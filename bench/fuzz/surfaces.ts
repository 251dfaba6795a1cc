/** Surfaces: all that is fuzzed, by name. */
import { ggufFiles } from './gguf-files.ts';
import { preparedFolders } from './prepared-folders.ts';
import { promptTexts } from './prompt-texts.ts';
import { redisContents } from './redis-contents.ts';
import { requestBodies } from './request-bodies.ts';
import { requestHeads } from './request-heads.ts';
import { samplingParameters } from './sampling-parameters.ts';
import type { LiveSurface, PartSurface } from './surface.ts';

export const PART_SURFACES = {
  gguf: ggufFiles,
  prepared: preparedFolders,
  text: promptTexts,
  sampling: samplingParameters,
} as const satisfies Record<string, PartSurface>;

/** Redis last: whatever is left there would be blamed on the others. */
export const LIVE_SURFACES = {
  bodies: requestBodies,
  heads: requestHeads,
  redis: redisContents,
} as const satisfies Record<string, LiveSurface>;

export type PartSurfaceName = keyof typeof PART_SURFACES;
export type LiveSurfaceName = keyof typeof LIVE_SURFACES;
export type SurfaceName = PartSurfaceName | LiveSurfaceName;
export const SURFACE_NAMES = [...Object.keys(PART_SURFACES), ...Object.keys(LIVE_SURFACES)] as SurfaceName[];
