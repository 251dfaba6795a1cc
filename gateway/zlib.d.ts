/** Zlib: what is used here of Node's module, which workerd has by nodejs_compat. */
declare module 'node:zlib' {
  /** Throws a RangeError for more than `maxOutputLength` bytes, about, having written no more; an Error for what is not of the coding, or cut off. */
  type Decompress = (bytes: Uint8Array, options: { maxOutputLength: number }) => Uint8Array;
  export const gunzipSync: Decompress;
  export const inflateSync: Decompress;
  export const brotliDecompressSync: Decompress;
}
