/** DocsReader: the reader of the page /docs, a script, compressed by gzip; a module of its own (deploy/docs-reader.ts). */
declare module 'sluice-docs-reader' {
  const reader: ArrayBuffer;
  export default reader;
}
