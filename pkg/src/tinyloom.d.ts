// Types of the generated wasm-bindgen module (dist/tinyloom.js), so that the sources compile
// before it exists. tests/package/package.test.mjs checks the generated declarations against them.
import type { RawExports } from "./raw-types.js";

/** The glue of one instance of the module: scripts/instances.mjs makes it a function. */
export declare function instance(): RawExports;
