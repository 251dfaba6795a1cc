/**
 * Bench: `npm run bench -- NAME`. The benches build on the scripts room, so the compiler must not see an import the other way;
 * hence the address that is computed.
 */
const address = new URL('../bench/main.ts', import.meta.url).href;
const { main } = (await import(address)) as { main(args: readonly string[]): Promise<number> };
process.exit(await main(process.argv.slice(2)));
