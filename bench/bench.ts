/**
 * Bench: the contract between the frame and one measurement. A bench measures and reports; the frame reads the command line,
 * adds the facts about the host, renders and judges.
 */
import type { Children } from './children.ts';
import type { Findings } from './report.ts';
import type { SettingSpecs, SettingsOf } from './settings.ts';

export interface BenchRun<S extends SettingSpecs = SettingSpecs> {
  settings: SettingsOf<S>;
  /** Says on stderr what is going on. */
  progress(line: string): void;
  /** Whatever the bench starts, so that it is ended however the run ends. */
  children: Children;
}

export interface Bench<S extends SettingSpecs = SettingSpecs> {
  settings: S;
  run(run: BenchRun<S>): Promise<Findings>;
}

/** Keeps the exact type of the settings, so that `run.settings.name` is known to the compiler. */
export function bench<const S extends SettingSpecs>(definition: Bench<S>): Bench<S> {
  return definition;
}
