#!/usr/bin/env node
/** Sluice: the command that `npx sluice` finds; it runs scripts/sluice.ts on the Node of node_modules, whatever Node the machine has. */
process.argv.splice(2, 0, 'sluice');
await import('./run.mjs');
