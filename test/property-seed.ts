/**
 * PropertySeed: property tests try the same inputs in every run, so that a failure comes from a change and is seen again. Another seed, or `random`, is
 * given with SLUICE_TEST_SEED.
 */
import fc from 'fast-check';

const chosen = process.env.SLUICE_TEST_SEED ?? '1';
if (chosen !== 'random') fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: Number(chosen) });
