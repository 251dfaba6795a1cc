/** Page: page.html with its styles and its script put in, as the bundler (deploy/playground-page.ts) hands it to the Worker. */

export declare const html: string;
export declare const htmlHash: string;
/** As a content security policy names them: `sha256-…`. */
export declare const styleHash: string;
export declare const scriptHash: string;
