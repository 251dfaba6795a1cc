/** Surface: one place where the product takes in what others wrote, and how hostile inputs are fed to it. */
import type { BenchModel } from '../model.ts';
import type { Stack } from '../stack.ts';
import type { Dice } from './dice.ts';

/** The model that the product runs, as far as another thread can be told of it. */
export type FuzzedModel = Pick<BenchModel, 'directory' | 'kernelPath' | 'name' | 'manifest' | 'ggufPath'>;

export interface Surface {
  /** Inputs fed at a time; 1 where absent. */
  width?: number;
  /** Makes one input and feeds it; resolves with what came of it, in a few words. Throws for what must never come of any input. */
  feed(dice: Dice): Promise<string>;
  close?(): Promise<void>;
}

/** A surface of a part that runs in this process: given to a thread of its own, which can be ended when it hangs. */
export interface PartSurface {
  /** As the report has it. */
  what: string;
  /** Everything that it needs to know, since it is opened in another thread. */
  open(model: FuzzedModel): Promise<Surface>;
}

/** A surface of the running product. */
export interface LiveSurface {
  what: string;
  open(stack: Stack): Promise<Surface>;
}
